"""The sequences that requests go out in have a read view, which every upgrade makes."""

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """No table changes."""


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
