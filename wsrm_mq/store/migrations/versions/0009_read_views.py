"""The read views. They are made at the end of every upgrade, from their one definition: see ``store.published``."""

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    pass


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
