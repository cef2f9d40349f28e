"""One case against one subject: building, comparing, refusing, reporting."""
