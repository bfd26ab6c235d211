"""The socket side of a broker: framing, back pressure, ordered answers. It knows frames, not APIs."""
