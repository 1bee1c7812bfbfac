"""The oldest schema that is brought forward. A new store is never made so; see ``creating``."""

revision = "0019"
down_revision = None


def upgrade() -> None:
    raise NotImplementedError("a new store is made with the newest schema")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
