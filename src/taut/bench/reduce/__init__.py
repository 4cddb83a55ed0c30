"""``taut bench reduce``: keyed state under overload and with little memory."""
