"""Cases: their form, their files, the batches in them, the corpus."""
