"""Records, a model, one loss per unit and metrics, put together."""
