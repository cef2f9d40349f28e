"""Pictures of cases and reports of runs: a model of shapes, drawn as HTML or in a terminal."""
