"""Hosts that somebody owns: who runs there, who is evicted (OPIE, through `placement`). Pure."""
