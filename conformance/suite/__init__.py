"""The suite of ``pytest --pyargs conformance --subject NAME``: a test a field and path, a refusal, a corpus case."""
