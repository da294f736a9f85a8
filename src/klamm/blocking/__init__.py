"""The clients for programs without asyncio: the same ones, on an event loop in a thread of their own.

`background` is that thread and how others have something done on it, `face` what the three clients share. What a client
needs besides is between the two sides: `outgoing` takes records from any thread to the producer without a wait for
each; `lent` and `lending` bring records from the consumer many at a time, and know which of them the application has
really had. Everything else is decided in `klamm.client`; nothing here may talk to a broker.

Each client has a thread of its own and not one for all: a callback of one may then wait for another.
"""

from klamm.blocking.admin import Admin
from klamm.blocking.consumer import Consumer
from klamm.blocking.outgoing import Delivery
from klamm.blocking.producer import Producer

__all__ = ["Admin", "Consumer", "Delivery", "Producer"]
