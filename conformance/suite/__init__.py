"""The suite of ``pytest --pyargs inputmeta.conformance --subject NAME``: a test a field and path, a refusal, a corpus
case.
"""
