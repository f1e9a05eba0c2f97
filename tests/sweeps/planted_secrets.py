"""Environment variables with secrets, and the files of a directory that contain them."""

from tests.faults.damage import contents

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "planted-wJalrXUtnFEMI",
    "HF_TOKEN": "planted-hf_0123456789",
    "LVP_PLANTED": "planted-of-ours",
    "XLA_PLANTED": "planted-of-xla",
    "RAY_PLANTED": "planted-of-ray",
    "JAX_PLANTED": "planted-of-jax",
}


def files_with_secrets(folder):
    """The files in a directory that contain the name or the value of a planted variable."""
    words = [word.encode() for word in (*SECRETS, *SECRETS.values())]
    files = (path for path, content in contents(folder).items() if any(word in content for word in words))
    return {str(path.relative_to(folder)) for path in files}
