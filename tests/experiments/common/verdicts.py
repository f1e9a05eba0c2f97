"""How tests read verdicts that no single setting may decide."""


def supported_with_all(claim) -> bool:
    """Whether the fit to all settings supports a claim. Without one, a true claim may be unresolved by chance."""
    return claim.verdict == "supported" or "supported with all, but not without" in claim.note
