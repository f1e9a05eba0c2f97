"""The one exception that means "what you gave us cannot be used"."""


class InputError(ValueError):
    """A value from a user (argument, file, configuration) that cannot be used.

    Its message is one line that names the value and, where there is one, the way out. Command lines print it
    and exit with code 2; nothing has been written when it is raised.
    """
