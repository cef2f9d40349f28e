"""Public engines as subjects: code that nobody here wrote, behind one adapter each.

``packages.py`` says which releases and fetches them (``inputmeta engines fetch``); ``adapter.py`` is what an adapter is
made of; ``plants.py`` the form of faults that are planted in their sources; ``recorded.py`` keeps what they gave, so
that a translation is tested without them. An adapter is a file named after its engine, with an entry point in
``pyproject.toml``. Nothing of an engine is imported before its subject is loaded.
"""
