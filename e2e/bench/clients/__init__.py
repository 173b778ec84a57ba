"""What clients may ask: requests over the whole space of their fields, sent to the real engine."""
