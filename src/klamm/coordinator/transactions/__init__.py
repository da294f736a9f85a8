"""The transaction coordinator: who may write under which transactional id, and how each transaction ends."""
