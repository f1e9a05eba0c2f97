"""The names of the experiments, apart from the experiments themselves, whose import takes seconds."""

NAMES = (
    "width_vocab",
    "width_fixed_vocab",
    "row_growth",
    "vocab_effect",
    "mean_embedding",
    "warmup",
    "warmup_batch",
    "large_updates",
    "pretrain_1b",
    "token_frequencies",
    "feature_learning",
    "linear_network",
    "muon",
    "leaderboard",
    "rate_transfer",
    "representation_change",
    "fresh_text",
    "tied",
)
