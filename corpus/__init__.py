"""The corpus: hand-designed and found cases, one JSON file each under ``cases``. See README.md beside this file."""
