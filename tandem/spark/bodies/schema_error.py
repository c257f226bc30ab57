"""What is wrong with a schema of bodies."""


class BodySchemaError(ValueError):
    """A schema cannot be read, or bodies cannot be read by it. `field` is where; "" is all of it.

    The option `bodySchema` makes an OptionError of it.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text, field)
        self.field = field

    def __str__(self) -> str:
        return str(self.args[0])
