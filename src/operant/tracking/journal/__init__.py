"""The journal of a search: every decision, appended before it is acted on, by the controller that holds the lease."""

from operant.tracking.journal import trial_lines
from operant.tracking.journal.damage import Damage
from operant.tracking.journal.inbox import Message, collect_messages, post_message
from operant.tracking.journal.journal import Entry, Journal, JournalReader, controller_is_alive
from operant.tracking.journal.lease import Lease, LeaseHeldError

__all__ = [
    "Damage",
    "Entry",
    "Journal",
    "JournalReader",
    "Lease",
    "LeaseHeldError",
    "Message",
    "collect_messages",
    "controller_is_alive",
    "post_message",
    "trial_lines",
]
