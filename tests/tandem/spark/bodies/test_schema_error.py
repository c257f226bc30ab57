from tandem.spark.bodies.schema_error import BodySchemaError


def test_an_error_says_which_field() -> None:
    error = BodySchemaError("field a is there twice", "a")
    assert (error.field, str(error)) == ("a", "field a is there twice")
