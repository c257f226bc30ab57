"""Bodies as columns: the option `bodySchema` of the sources, for JSON and for Avro."""
