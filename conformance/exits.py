"""Exit codes of the command line. They fit ``git bisect run``: 125 skips a revision that cannot be tested."""

CONFORMS = 0
DIFFERS = 1
BAD_USAGE = 2
REFUSED = 3
NOTHING_RAN = 4
NO_SUBJECT = 125

EXPLANATION = """Exit codes:

0 conforms;
1 differs (any verdict other than PASS, UNSUPPORTED and KNOWN), a known failure is out of date (`check`, `replay`), an
adapter breaks its contract (`subject check`), or corpus lint / fmt --check found something;
2 bad usage, or a file that cannot be used;
3 `oracle`: the case breaks a precondition;
4 nothing was checked: the subject claims nothing of it;
125 the subject cannot be loaded or started (`git bisect run` skips the revision)."""
