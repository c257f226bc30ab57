"""The tasks of an open store: flush, dispatch, cleaning."""
