"""Names of the axes of a mesh, which `lvp.parallel.sharding` describes."""

DATA, FSDP, MODEL = AXES = ("data", "fsdp", "model")
TOKENS = (DATA, FSDP)  # the axes that split rows
