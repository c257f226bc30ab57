"""Modules that an installation puts beside the packages, where Spark looks for sources by name.

Spark imports every module whose name begins with `pyspark_` before it looks up a format that is not
its own, and takes the class `DefaultSource` of each. One that cannot be imported would
break the formats of everybody else: these have no class where a requirement is missing.
"""
