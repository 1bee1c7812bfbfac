CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('0014');
CREATE TABLE archive (
	id TEXT NOT NULL,
	place TEXT NOT NULL,
	number INTEGER NOT NULL,
	ledger INTEGER NOT NULL,
	read_at INTEGER NOT NULL,
	confirmed_at INTEGER NOT NULL,
	actor TEXT NOT NULL,
	PRIMARY KEY (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE counter (
	name TEXT NOT NULL,
	queue INTEGER NOT NULL,
	label TEXT NOT NULL,
	value INTEGER NOT NULL,
	PRIMARY KEY (name, queue, label)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE epoch (
	mark INTEGER NOT NULL,
	token TEXT NOT NULL,
	PRIMARY KEY (mark)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE identity (
	id TEXT NOT NULL,
	mark INTEGER NOT NULL,
	copied_at INTEGER,
	PRIMARY KEY (id)
)
 STRICT;
CREATE TABLE instance (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at INTEGER,
	application TEXT,
	paths TEXT,
	UNIQUE (name)
)
 STRICT;
CREATE INDEX instance_live ON instance (id) WHERE ended_at IS NULL;
CREATE TABLE ledger (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at INTEGER NOT NULL,
	event TEXT NOT NULL,
	queue INTEGER,
	sequence INTEGER,
	number INTEGER,
	position INTEGER,
	instance TEXT,
	attempt INTEGER,
	reason TEXT,
	actor TEXT,
	fault TEXT,
	exception TEXT,
	place TEXT
)
 STRICT;
CREATE INDEX ledger_acts ON ledger (id) WHERE actor IS NOT NULL;
CREATE INDEX ledger_attempts ON ledger (at) WHERE event IN ('failed', 'holder_died', 'broke_off', 'answered_with_fault');
CREATE INDEX ledger_by_position ON ledger (position) WHERE position IS NOT NULL;
CREATE INDEX ledger_by_sequence ON ledger (sequence, id);
CREATE INDEX ledger_rest ON ledger (at, id) WHERE sequence IS NULL AND position IS NULL;
CREATE TABLE message (
	id INTEGER NOT NULL,
	message_id TEXT,
	action TEXT,
	environ TEXT NOT NULL,
	principal TEXT,
	connection TEXT,
	received_at INTEGER NOT NULL,
	body_size INTEGER NOT NULL,
	body BLOB,
	PRIMARY KEY (id)
)
 STRICT;
CREATE TABLE queue (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	parent INTEGER,
	created_at INTEGER NOT NULL,
	application TEXT,
	CONSTRAINT kind_is_a_word CHECK (kind IN ('app', 'dead_letter', 'outgoing')),
	UNIQUE (name),
	FOREIGN KEY(parent) REFERENCES queue (id)
)
 STRICT;
CREATE UNIQUE INDEX queue_dead_letters ON queue (parent) WHERE kind = 'dead_letter';
CREATE TABLE refusal (
	reason TEXT NOT NULL,
	partner TEXT NOT NULL,
	times INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	PRIMARY KEY (reason, partner)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE watermark (
	name TEXT NOT NULL,
	upto INTEGER NOT NULL,
	PRIMARY KEY (name)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE archived (
	archive TEXT NOT NULL,
	kind TEXT NOT NULL,
	lower INTEGER NOT NULL,
	upper INTEGER NOT NULL,
	PRIMARY KEY (archive, kind, lower),
	CONSTRAINT archived_is_a_word CHECK (kind IN ('messages', 'sequences')),
	CONSTRAINT archived_is_not_empty CHECK (lower <= upper),
	FOREIGN KEY(archive) REFERENCES archive (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE connection_message (
	connection TEXT NOT NULL,
	message INTEGER NOT NULL,
	PRIMARY KEY (connection, message),
	FOREIGN KEY(message) REFERENCES message (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE "plan" (
	id TEXT NOT NULL,
	digest TEXT NOT NULL,
	file TEXT NOT NULL,
	made_at INTEGER NOT NULL,
	actor TEXT,
	reason TEXT,
	"query" TEXT NOT NULL,
	target TEXT NOT NULL,
	as_new INTEGER NOT NULL,
	messages INTEGER NOT NULL,
	state TEXT NOT NULL,
	owner INTEGER,
	line INTEGER DEFAULT '0' NOT NULL,
	skipped INTEGER DEFAULT '0' NOT NULL,
	missing INTEGER DEFAULT '0' NOT NULL,
	begun_at INTEGER,
	ended_at INTEGER,
	PRIMARY KEY (id),
	CONSTRAINT state_is_a_word CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
	FOREIGN KEY(owner) REFERENCES instance (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE sequence (
	id INTEGER NOT NULL,
	queue INTEGER NOT NULL,
	identifier TEXT NOT NULL,
	create_id TEXT,
	principal TEXT,
	peer TEXT,
	partner TEXT,
	rm TEXT NOT NULL,
	soap TEXT NOT NULL,
	addressing TEXT NOT NULL,
	behavior TEXT NOT NULL,
	assurance TEXT NOT NULL,
	ordered INTEGER NOT NULL,
	incomplete_reason TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER,
	inactivity INTEGER,
	state TEXT NOT NULL,
	ended TEXT,
	ended_at INTEGER,
	active_at INTEGER NOT NULL,
	due_at INTEGER,
	last_number INTEGER,
	expected INTEGER NOT NULL,
	cursor INTEGER NOT NULL,
	"limit" INTEGER NOT NULL,
	discard_from INTEGER,
	discard_reason TEXT,
	discarding INTEGER DEFAULT '0' NOT NULL,
	owner INTEGER,
	fence INTEGER NOT NULL,
	running_since INTEGER,
	retry_from INTEGER,
	retry_at INTEGER,
	blocked INTEGER,
	redelivery_below INTEGER DEFAULT '0' NOT NULL,
	duplicates INTEGER DEFAULT '0' NOT NULL,
	kind TEXT DEFAULT 'rm' NOT NULL,
	connection TEXT,
	held INTEGER DEFAULT '0' NOT NULL,
	held_bytes INTEGER DEFAULT '0' NOT NULL,
	pruned INTEGER DEFAULT '0' NOT NULL,
	on_hold_since INTEGER,
	late TEXT,
	replay_of INTEGER,
	"plan" TEXT,
	acks_to TEXT,
	ack_due_at INTEGER,
	acks_fetched_by TEXT,
	ack_waits INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closed', 'ended')),
	CONSTRAINT kind_is_a_word CHECK (kind IN ('rm', 'connection', 'replay', 'outgoing')),
	CONSTRAINT late_is_a_word CHECK (late IN ('accept', 'refuse')),
	CONSTRAINT cursor_within_limit CHECK (cursor <= "limit"),
	FOREIGN KEY(queue) REFERENCES queue (id),
	UNIQUE (identifier),
	FOREIGN KEY(owner) REFERENCES instance (id),
	FOREIGN KEY(replay_of) REFERENCES sequence (id),
	FOREIGN KEY("plan") REFERENCES "plan" (id)
)
 STRICT;
CREATE INDEX sequence_ack_due ON sequence (ack_due_at) WHERE ack_due_at IS NOT NULL;
CREATE INDEX sequence_ack_waits ON sequence (acks_fetched_by) WHERE ack_waits = 1;
CREATE INDEX sequence_by_connection ON sequence (connection, queue) WHERE connection IS NOT NULL AND ended_at IS NULL;
CREATE INDEX sequence_by_plan ON sequence ("plan") WHERE plan IS NOT NULL;
CREATE INDEX sequence_create_id ON sequence (create_id) WHERE create_id IS NOT NULL;
CREATE INDEX sequence_discarding ON sequence (id) WHERE discarding = 1;
CREATE INDEX sequence_due ON sequence (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX sequence_ended ON sequence (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX sequence_holding ON sequence (held, held_bytes) WHERE held > 0;
CREATE INDEX sequence_open ON sequence (principal, peer) WHERE state = 'created' AND kind = 'rm';
CREATE INDEX sequence_owned ON sequence (owner) WHERE owner IS NOT NULL;
CREATE INDEX sequence_replays ON sequence (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX sequence_runnable ON sequence (retry_at) WHERE on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from);
CREATE TABLE channel (
	sequence INTEGER NOT NULL,
	answers INTEGER NOT NULL,
	address TEXT NOT NULL,
	parameters TEXT NOT NULL,
	is_numbered INTEGER NOT NULL,
	PRIMARY KEY (sequence),
	FOREIGN KEY(sequence) REFERENCES sequence (id),
	FOREIGN KEY(answers) REFERENCES sequence (id)
)
 STRICT;
CREATE INDEX channel_by_address ON channel (address);
CREATE UNIQUE INDEX channel_by_endpoint ON channel (answers, address, parameters, is_numbered);
CREATE TABLE entry (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	queue INTEGER NOT NULL,
	message INTEGER NOT NULL,
	sequence INTEGER,
	number INTEGER,
	wants_reply INTEGER DEFAULT '0' NOT NULL,
	named INTEGER DEFAULT '1' NOT NULL,
	outcome TEXT,
	reason TEXT,
	settled_at INTEGER,
	deliveries INTEGER DEFAULT '0' NOT NULL,
	failures INTEGER DEFAULT '0' NOT NULL,
	cancels INTEGER DEFAULT '0' NOT NULL,
	deaths INTEGER DEFAULT '0' NOT NULL,
	retry_from INTEGER,
	retry_at INTEGER,
	last_error TEXT,
	waiter TEXT,
	origin INTEGER,
	replay_of INTEGER,
	confirmed_at INTEGER,
	late INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT outcome_is_a_word CHECK (outcome IN ('delivered', 'dead', 'discarded', 'purged')),
	CONSTRAINT settled_has_outcome CHECK ((outcome IS NULL) = (settled_at IS NULL)),
	FOREIGN KEY(queue) REFERENCES queue (id),
	FOREIGN KEY(message) REFERENCES message (id),
	FOREIGN KEY(sequence) REFERENCES sequence (id),
	FOREIGN KEY(origin) REFERENCES queue (id),
	FOREIGN KEY(replay_of) REFERENCES entry (id)
)
 STRICT;
CREATE INDEX entry_by_message ON entry (message);
CREATE INDEX entry_dead ON entry (queue, id, confirmed_at) WHERE outcome = 'dead';
CREATE INDEX entry_faulted ON entry (settled_at, outcome, confirmed_at) WHERE reason = 'answered_with_fault';
CREATE UNIQUE INDEX entry_live ON entry (sequence, number) WHERE outcome IS NULL AND sequence IS NOT NULL;
CREATE INDEX entry_unnamed ON entry (sequence, number) WHERE named = 0;
CREATE TABLE outgoing (
	sequence INTEGER NOT NULL,
	identifier TEXT NOT NULL,
	expires_at INTEGER,
	state TEXT NOT NULL,
	given INTEGER NOT NULL,
	acknowledged TEXT NOT NULL,
	unacknowledged INTEGER NOT NULL,
	last_number INTEGER,
	is_final INTEGER NOT NULL,
	waiting_since INTEGER,
	endpoint TEXT,
	acks_with_reply INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (sequence),
	CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closing', 'closed', 'terminating', 'terminated', 'expired', 'failed')),
	FOREIGN KEY(sequence) REFERENCES sequence (id),
	UNIQUE (identifier)
)
 STRICT;
CREATE INDEX outgoing_created ON outgoing (sequence) WHERE state = 'created';
CREATE TABLE range (
	sequence INTEGER NOT NULL,
	lower INTEGER NOT NULL,
	upper INTEGER NOT NULL,
	PRIMARY KEY (sequence, lower),
	CONSTRAINT range_is_not_empty CHECK (lower <= upper),
	FOREIGN KEY(sequence) REFERENCES sequence (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE reply (
	entry INTEGER NOT NULL,
	status TEXT NOT NULL,
	headers TEXT NOT NULL,
	stored_at INTEGER NOT NULL,
	body BLOB NOT NULL,
	sequence INTEGER,
	number INTEGER,
	outgoing_entry INTEGER,
	PRIMARY KEY (entry),
	FOREIGN KEY(entry) REFERENCES entry (id)
)
 STRICT;
CREATE UNIQUE INDEX reply_numbered ON reply (sequence, number) WHERE number IS NOT NULL;
CREATE TABLE sequence_entry (
	sequence INTEGER NOT NULL,
	number INTEGER NOT NULL,
	entry INTEGER NOT NULL,
	PRIMARY KEY (sequence, number),
	FOREIGN KEY(sequence) REFERENCES sequence (id),
	FOREIGN KEY(entry) REFERENCES entry (id)
)
 WITHOUT ROWID,
 STRICT;
INSERT INTO identity (id, mark) VALUES ('00112233445566778899aabbccddeeff', 0);
INSERT INTO watermark (name, upto) VALUES ('connection_message', 0), ('sequence_entry', 0);
INSERT INTO sqlite_sequence (name, seq) VALUES ('entry', 0), ('queue', 0);
CREATE VIEW read_views AS SELECT 1 AS version;
CREATE VIEW queues AS SELECT queue.id AS "key", queue.name AS queue, queue.kind, (SELECT other.name
FROM queue AS other
WHERE other.id = queue.parent) AS parent, queue.application, queue.created_at, (SELECT count(*) AS count_1
FROM queue AS letters JOIN entry ON entry.queue = letters.id
WHERE letters.parent = queue.id AND letters.kind = 'dead_letter' AND entry.outcome = 'dead') AS dead_letters, (SELECT count(*) AS count_2
FROM queue AS letters JOIN entry ON entry.queue = letters.id
WHERE letters.parent = queue.id AND letters.kind = 'dead_letter' AND entry.outcome = 'dead' AND entry.confirmed_at IS NULL) AS unconfirmed
FROM queue;
CREATE VIEW instances AS SELECT instance.id AS "key", instance.name AS instance, instance.host, instance.pid, instance.started_at, instance.ended_at, instance.application, instance.paths
FROM instance;
CREATE VIEW sequences AS SELECT sequence.id AS "key", sequence.identifier AS sequence, queue.name AS queue, sequence.principal, sequence.peer, sequence.partner, sequence.rm, sequence.soap, sequence.addressing, sequence.behavior, sequence.assurance, sequence.ordered, sequence.created_at, sequence.expires_at, sequence.inactivity, sequence.state, sequence.ended, sequence.ended_at, sequence.active_at, CASE WHEN (sequence.state != 'ended') THEN min(coalesce(sequence.expires_at, sequence.active_at + sequence.inactivity), coalesce(sequence.active_at + sequence.inactivity, sequence.expires_at)) END AS due_at, sequence.last_number, sequence.expected, sequence.cursor, sequence."limit", sequence.discard_from, sequence.discard_reason, sequence.discarding, (SELECT instance.name
FROM instance
WHERE instance.id = sequence.owner) AS owner, sequence.running_since, sequence.retry_from, sequence.retry_at, sequence.blocked, sequence.redelivery_below, sequence.duplicates, sequence.kind, sequence.connection, sequence.on_hold_since, sequence.late, (SELECT coalesce(sum((range.upper - range.lower) + 1), 0) AS coalesce_1
FROM range
WHERE range.sequence = sequence.id) AS received, sequence.held, (SELECT coalesce(sum((min(range.upper, sequence."limit" - 1) - max(range.lower, sequence.cursor)) + 1), 0) AS coalesce_3
FROM range
WHERE range.sequence = sequence.id AND range.upper >= sequence.cursor AND range.lower < sequence."limit") AS ready, sequence.pruned, CASE WHEN (sequence.kind = 'replay' AND sequence.cursor < sequence."limit") THEN sequence.active_at ELSE (SELECT message.received_at
FROM message
WHERE message.id = (SELECT min(unsettled.message) AS min_1
FROM (SELECT entry.message AS message
FROM entry
WHERE entry.sequence = sequence.id AND entry.number >= sequence.cursor AND entry.outcome IS NULL ORDER BY entry.number
 LIMIT 1000 OFFSET 0) AS unsettled)) END AS oldest_at, replayed.identifier AS replay_of, sequence."plan", channel.address AS sends_to, answered.identifier AS answers, CASE WHEN (sequence.on_hold_since IS NOT NULL) THEN 'held' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NOT NULL) THEN 'blocked' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NOT NULL) THEN 'running' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NULL AND sequence.cursor < sequence."limit" AND (sequence.discard_from IS NULL OR sequence.cursor < sequence.discard_from) AND sequence.retry_at IS NOT NULL AND sequence.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (sequence.retry_from IS NULL OR sequence.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))) THEN 'retrying' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NULL AND sequence.cursor < sequence."limit" AND (sequence.discard_from IS NULL OR sequence.cursor < sequence.discard_from) AND NOT (sequence.retry_at IS NOT NULL AND sequence.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (sequence.retry_from IS NULL OR sequence.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)))) THEN 'ready' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NULL AND NOT (sequence.cursor < sequence."limit" AND (sequence.discard_from IS NULL OR sequence.cursor < sequence.discard_from)) AND sequence.discarding = 1) THEN 'discarding' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NULL AND NOT (sequence.cursor < sequence."limit" AND (sequence.discard_from IS NULL OR sequence.cursor < sequence.discard_from)) AND sequence.discarding != 1 AND sequence.held > 0) THEN 'waiting' WHEN (sequence.on_hold_since IS NULL AND sequence.blocked IS NULL AND sequence.owner IS NULL AND NOT (sequence.cursor < sequence."limit" AND (sequence.discard_from IS NULL OR sequence.cursor < sequence.discard_from)) AND sequence.discarding != 1 AND sequence.held <= 0) THEN 'idle' END AS delivery
FROM sequence JOIN queue ON queue.id = sequence.queue LEFT OUTER JOIN sequence AS replayed ON replayed.id = sequence.replay_of LEFT OUTER JOIN channel ON channel.sequence = sequence.id LEFT OUTER JOIN sequence AS answered ON answered.id = channel.answers;
CREATE VIEW ranges AS SELECT range.sequence AS "key", sequence.identifier AS sequence, range.lower, range.upper
FROM range JOIN sequence ON sequence.id = range.sequence;
CREATE VIEW messages AS SELECT entry.id AS position, queue.name AS queue, sequence.identifier AS sequence, entry.number, message.message_id, message.action, CASE WHEN (entry.outcome IS NOT NULL) THEN entry.outcome ELSE CASE WHEN (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) THEN 'held' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number >= sequence."limit") THEN 'held' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NOT NULL) THEN 'held' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NOT NULL AND NOT (sequence.owner IS NOT NULL AND entry.number = sequence.cursor)) THEN 'held' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NOT NULL AND sequence.owner IS NOT NULL AND entry.number = sequence.cursor) THEN 'leased' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NULL AND (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR sequence.retry_at IS NOT NULL AND sequence.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (sequence.retry_from IS NULL OR sequence.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)))) THEN 'held' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NULL AND NOT (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR sequence.retry_at IS NOT NULL AND sequence.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (sequence.retry_from IS NULL OR sequence.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))) AND sequence.owner IS NOT NULL AND entry.number = sequence.cursor) THEN 'leased' ELSE 'ready' END END AS state, CASE WHEN (entry.outcome IS NOT NULL) THEN entry.reason ELSE CASE WHEN (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) THEN 'sequence' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number >= sequence."limit") THEN 'gap' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NOT NULL) THEN 'sequence' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NOT NULL AND NOT (sequence.owner IS NOT NULL AND entry.number = sequence.cursor)) THEN 'operator' WHEN (NOT (sequence.discard_from IS NOT NULL AND entry.number >= sequence.discard_from) AND entry.number < sequence."limit" AND sequence.blocked IS NULL AND sequence.on_hold_since IS NULL AND (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR sequence.retry_at IS NOT NULL AND sequence.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (sequence.retry_from IS NULL OR sequence.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)))) THEN 'backoff' END END AS reason, entry.outcome, message.received_at, entry.settled_at, entry.deliveries, entry.failures, entry.retry_at, entry.last_error, message.principal, message.connection, json_extract(message.environ, '$.REMOTE_ADDR') AS peer, message.body_size, message.body IS NOT NULL AS has_body, message.environ AS request, entry.wants_reply, entry.named, entry.late, (SELECT other.name
FROM queue AS other
WHERE other.id = entry.origin) AS origin, entry.replay_of, entry.confirmed_at, source.identifier AS original_sequence, arrived.number AS original_number
FROM entry LEFT OUTER JOIN sequence ON sequence.id = entry.sequence LEFT OUTER JOIN queue ON queue.id = entry.queue LEFT OUTER JOIN message ON message.id = entry.message LEFT OUTER JOIN entry AS arrived ON arrived.id = entry.message LEFT OUTER JOIN sequence AS source ON source.id = arrived.sequence;
CREATE VIEW bodies AS SELECT entry.id AS position, message.body
FROM entry JOIN message ON message.id = entry.message;
CREATE VIEW replies AS SELECT reply.entry AS position, reply.status, reply.headers, reply.stored_at, reply.body, outgoing.identifier AS sequence, reply.number
FROM reply LEFT OUTER JOIN outgoing ON outgoing.sequence = reply.sequence;
CREATE VIEW outgoing_sequences AS SELECT outgoing.sequence AS "key", outgoing.identifier AS sequence, sequence.identifier AS answers, queue.name AS queue, CASE WHEN (outgoing.state = 'expired' OR outgoing.state = 'failed' OR outgoing.state = 'terminated') THEN 'ended' ELSE outgoing.state END AS state, CASE WHEN (outgoing.state = 'expired' OR outgoing.state = 'failed' OR outgoing.state = 'terminated') THEN outgoing.state END AS ended, outgoing.expires_at, outgoing.given AS sent, outgoing.last_number, outgoing.acknowledged, outgoing.unacknowledged, outgoing.waiting_since, sequence.created_at, sequence.active_at
FROM outgoing JOIN sequence ON sequence.id = outgoing.sequence JOIN queue ON queue.id = sequence.queue;
CREATE VIEW sequence_messages AS SELECT sequence.identifier AS sequence, sequence_entry.number, sequence_entry.entry AS position
FROM sequence_entry JOIN sequence ON sequence.id = sequence_entry.sequence UNION ALL SELECT sequence.identifier, entry.number, entry.id
FROM entry JOIN sequence ON sequence.id = entry.sequence
WHERE entry.id > (SELECT watermark.upto
FROM watermark
WHERE watermark.name = 'sequence_entry');
CREATE VIEW faulted AS SELECT entry.id AS position, (SELECT other.name
FROM queue AS other
WHERE other.id = entry.queue) AS queue, (SELECT sequence.identifier
FROM sequence
WHERE sequence.id = entry.sequence) AS sequence, entry.number, entry.settled_at, entry.outcome, entry.confirmed_at
FROM entry
WHERE entry.reason = 'answered_with_fault';
CREATE VIEW connection_messages AS SELECT connection_message.connection, connection_message.message AS position
FROM connection_message UNION ALL SELECT message.connection, message.id
FROM message
WHERE message.id > (SELECT watermark.upto
FROM watermark
WHERE watermark.name = 'connection_message') AND message.connection IS NOT NULL;
CREATE VIEW connections AS WITH RECURSIVE named(name) AS
(SELECT min(connection_message.connection) AS name
FROM connection_message UNION ALL SELECT (SELECT min(following.connection) AS min_1
FROM connection_message AS following
WHERE following.connection > named.name) AS anon_1
FROM named
WHERE named.name IS NOT NULL)
 SELECT "each".connection, max("each".last_position) AS last_position
FROM (SELECT named.name AS connection, (SELECT max(connection_message.message) AS max_1
FROM connection_message
WHERE connection_message.connection = named.name) AS last_position
FROM named
WHERE named.name IS NOT NULL UNION ALL SELECT message.connection AS connection, max(message.id) AS max_2
FROM message
WHERE message.id > (SELECT watermark.upto
FROM watermark
WHERE watermark.name = 'connection_message') AND message.connection IS NOT NULL GROUP BY message.connection) AS "each" GROUP BY "each".connection;
CREATE VIEW plans AS SELECT "plan".id AS "plan", "plan".digest, "plan".file, "plan".made_at, "plan".actor, "plan".reason, "plan"."query", "plan".target, "plan".as_new, "plan".messages, "plan".state, instance.name AS runner, instance.pid, "plan".line, "plan".skipped, "plan".missing, "plan".begun_at, "plan".ended_at
FROM "plan" LEFT OUTER JOIN instance ON instance.id = "plan".owner AND instance.ended_at IS NULL;
CREATE VIEW archives AS SELECT archive.id AS archive, archive.place, archive.number, archive.read_at, archive.confirmed_at, archive.actor, archive.ledger, (SELECT coalesce(sum((archived.upper - archived.lower) + 1), 0) AS coalesce_1
FROM archived
WHERE archived.archive = archive.id AND archived.kind = 'messages') AS positions, (SELECT coalesce(sum((archived.upper - archived.lower) + 1), 0) AS coalesce_3
FROM archived
WHERE archived.archive = archive.id AND archived.kind = 'sequences') AS sequences
FROM archive;
CREATE VIEW ledger_events AS SELECT ledger.id AS "key", ledger.at, ledger.event, (SELECT other.name
FROM queue AS other
WHERE other.id = ledger.queue) AS queue, sequence.identifier AS sequence, ledger.number, ledger.position, ledger.instance, ledger.attempt, ledger.reason, ledger.actor, ledger.fault, ledger.exception, ledger.place
FROM ledger LEFT OUTER JOIN sequence ON sequence.id = ledger.sequence;
CREATE VIEW attempts AS SELECT ledger.id AS "key", ledger.at, ledger.event, (SELECT other.name
FROM queue AS other
WHERE other.id = ledger.queue) AS queue, sequence.identifier AS sequence, ledger.number, ledger.position, ledger.instance, ledger.attempt, ledger.reason, ledger.actor, ledger.fault, ledger.exception, ledger.place
FROM ledger LEFT OUTER JOIN sequence ON sequence.id = ledger.sequence
WHERE ledger.event = 'failed' OR ledger.event = 'holder_died' OR ledger.event = 'broke_off' OR ledger.event = 'answered_with_fault';
CREATE VIEW counters AS SELECT counter.name, CASE WHEN (counter.queue = 0) THEN '' ELSE (SELECT other.name
FROM queue AS other
WHERE other.id = counter.queue) END AS queue, counter.label, counter.value
FROM counter;
CREATE VIEW refusals AS SELECT refusal.reason, refusal.partner, refusal.times, refusal.last_at
FROM refusal;
