CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
;
INSERT INTO alembic_version VALUES ('0023');
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
 STRICT
;
CREATE TABLE arrived (
	queue INTEGER NOT NULL, 
	node TEXT NOT NULL, 
	incarnation TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	at INTEGER NOT NULL, 
	PRIMARY KEY (queue, node, incarnation, position)
)
 WITHOUT ROWID,
 STRICT
;
CREATE INDEX arrived_at ON arrived (at);
CREATE TABLE client (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	instance INTEGER NOT NULL, 
	started_at INTEGER NOT NULL, 
	seen_at INTEGER NOT NULL, 
	ended_at INTEGER
)
 STRICT
;
CREATE INDEX client_live ON client (instance) WHERE ended_at IS NULL;
CREATE TABLE counter (
	name TEXT NOT NULL, 
	queue INTEGER NOT NULL, 
	label TEXT NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name, queue, label)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE epoch (
	mark INTEGER NOT NULL, 
	token TEXT NOT NULL, 
	PRIMARY KEY (mark)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE hop (
	address TEXT NOT NULL, 
	away_since INTEGER, 
	tried_next_at INTEGER, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	last_error TEXT, 
	node TEXT, 
	moves INTEGER DEFAULT '0' NOT NULL, 
	forgot TEXT, 
	forgot_at INTEGER, 
	PRIMARY KEY (address)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE identity (
	id TEXT NOT NULL, 
	mark INTEGER NOT NULL, 
	copied_at INTEGER, 
	clock_offset INTEGER, 
	node TEXT, 
	PRIMARY KEY (id)
)
 STRICT
;
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
 STRICT
;
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
 STRICT
;
CREATE INDEX ledger_acts ON ledger (id) WHERE actor IS NOT NULL;
CREATE INDEX ledger_attempts ON ledger (at) WHERE event IN ('failed', 'holder_died', 'broke_off', 'lease_ended', 'answered_with_fault');
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
 STRICT
;
CREATE TABLE outbox (
	principal TEXT NOT NULL, 
	lane TEXT NOT NULL, 
	last INTEGER NOT NULL, 
	seen_at INTEGER NOT NULL, 
	PRIMARY KEY (principal, lane)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE queue (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	parent INTEGER, 
	created_at INTEGER NOT NULL, 
	application TEXT, 
	policy TEXT, 
	mode TEXT, 
	messages INTEGER DEFAULT '0' NOT NULL, 
	bytes INTEGER DEFAULT '0' NOT NULL, 
	last_position INTEGER, 
	last_put_at INTEGER, 
	counted_at INTEGER DEFAULT '0' NOT NULL, 
	came REAL DEFAULT '0' NOT NULL, 
	went REAL DEFAULT '0' NOT NULL, 
	owner INTEGER, 
	holder TEXT, 
	keeper INTEGER, 
	CONSTRAINT kind_is_a_word CHECK (kind IN ('app', 'dead_letter', 'outgoing', 'subscription', 'topic', 'journal', 'report')), 
	CONSTRAINT mode_is_a_word CHECK (mode IN ('dispatch', 'pull')), 
	UNIQUE (name), 
	FOREIGN KEY(parent) REFERENCES queue (id)
)
 STRICT
;
CREATE UNIQUE INDEX queue_dead_letters ON queue (parent) WHERE kind = 'dead_letter';
CREATE INDEX queue_held ON queue (owner) WHERE owner IS NOT NULL;
CREATE INDEX queue_kept ON queue (keeper) WHERE keeper IS NOT NULL;
CREATE TABLE refusal (
	reason TEXT NOT NULL, 
	partner TEXT NOT NULL, 
	times INTEGER NOT NULL, 
	last_at INTEGER NOT NULL, 
	said TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (reason, partner)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE route (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	pattern TEXT NOT NULL, 
	next_hop TEXT NOT NULL, 
	cost INTEGER NOT NULL, 
	strip INTEGER NOT NULL, 
	created_at INTEGER NOT NULL
)
 STRICT
;
CREATE UNIQUE INDEX route_by_pattern ON route (pattern, next_hop);
CREATE TABLE token (
	name TEXT NOT NULL, 
	digest TEXT, 
	certificate TEXT, 
	grants TEXT NOT NULL, 
	created_at INTEGER NOT NULL, 
	expires_at INTEGER, 
	used_at INTEGER, 
	PRIMARY KEY (name), 
	CONSTRAINT it_is_known_by_one_thing CHECK ((digest IS NULL) <> (certificate IS NULL)), 
	UNIQUE (digest), 
	UNIQUE (certificate)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE watermark (
	name TEXT NOT NULL, 
	upto INTEGER NOT NULL, 
	PRIMARY KEY (name)
)
 WITHOUT ROWID,
 STRICT
;
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
 STRICT
;
CREATE TABLE binding (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	pattern TEXT NOT NULL, 
	filter TEXT, 
	queue INTEGER NOT NULL, 
	created_at INTEGER NOT NULL, 
	FOREIGN KEY(queue) REFERENCES queue (id)
)
 STRICT
;
CREATE INDEX binding_by_queue ON binding (queue);
CREATE TABLE connection_message (
	connection TEXT NOT NULL, 
	message INTEGER NOT NULL, 
	PRIMARY KEY (connection, message), 
	FOREIGN KEY(message) REFERENCES message (id)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE dedupe (
	queue INTEGER NOT NULL, 
	message_id TEXT NOT NULL, 
	message INTEGER NOT NULL, 
	until INTEGER NOT NULL, 
	PRIMARY KEY (queue, message_id), 
	FOREIGN KEY(queue) REFERENCES queue (id)
)
 WITHOUT ROWID,
 STRICT
;
CREATE INDEX dedupe_until ON dedupe (until);
CREATE TABLE header (
	message INTEGER NOT NULL, 
	topic TEXT, 
	properties TEXT, 
	content_type TEXT, 
	receive_by INTEGER, 
	client TEXT, 
	report_to TEXT, 
	PRIMARY KEY (message), 
	FOREIGN KEY(message) REFERENCES message (id)
)
 STRICT
;
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
 STRICT
;
CREATE TABLE routed (
	message INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	sent_as TEXT, 
	node TEXT NOT NULL, 
	incarnation TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	via TEXT NOT NULL, 
	max_hops INTEGER NOT NULL, 
	priority INTEGER NOT NULL, 
	lane_group TEXT, 
	asks INTEGER NOT NULL, 
	deliver_at INTEGER, 
	expires_at INTEGER, 
	reach_by INTEGER, 
	PRIMARY KEY (message), 
	FOREIGN KEY(message) REFERENCES message (id)
)
 STRICT
;
CREATE INDEX routed_by_origin ON routed (position);
CREATE TABLE subscription (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT, 
	client INTEGER, 
	queue INTEGER NOT NULL, 
	pattern TEXT, 
	filter TEXT, 
	asked INTEGER NOT NULL, 
	granted INTEGER NOT NULL, 
	lease INTEGER, 
	acknowledges TEXT NOT NULL, 
	barrier INTEGER, 
	created_at INTEGER NOT NULL, 
	seen_at INTEGER NOT NULL, 
	ended_at INTEGER, 
	beside TEXT, 
	FOREIGN KEY(client) REFERENCES client (id), 
	FOREIGN KEY(queue) REFERENCES queue (id)
)
 STRICT
;
CREATE INDEX subscription_by_client ON subscription (client) WHERE ended_at IS NULL;
CREATE INDEX subscription_by_queue ON subscription (queue) WHERE ended_at IS NULL;
CREATE TABLE lane (
	id INTEGER NOT NULL, 
	queue INTEGER NOT NULL, 
	kind TEXT DEFAULT 'rm' NOT NULL, 
	identifier TEXT NOT NULL, 
	principal TEXT, 
	peer TEXT, 
	partner TEXT, 
	soap TEXT NOT NULL, 
	addressing TEXT NOT NULL, 
	assurance TEXT NOT NULL, 
	ordered INTEGER NOT NULL, 
	created_at INTEGER NOT NULL, 
	active_at INTEGER NOT NULL, 
	inactivity INTEGER, 
	due_at INTEGER, 
	ended TEXT, 
	ended_at INTEGER, 
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
	held INTEGER DEFAULT '0' NOT NULL, 
	held_bytes INTEGER DEFAULT '0' NOT NULL, 
	pruned INTEGER DEFAULT '0' NOT NULL, 
	on_hold_since INTEGER, 
	connection TEXT, 
	replay_of INTEGER, 
	"plan" TEXT, 
	served_at INTEGER, 
	leased_below INTEGER, 
	leased_until INTEGER, 
	lessee INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT kind_is_a_word CHECK (kind IN ('rm', 'connection', 'replay', 'outgoing', 'group')), 
	CONSTRAINT cursor_within_limit CHECK (cursor <= "limit"), 
	FOREIGN KEY(queue) REFERENCES queue (id), 
	UNIQUE (identifier), 
	FOREIGN KEY(owner) REFERENCES instance (id), 
	FOREIGN KEY(replay_of) REFERENCES lane (id), 
	FOREIGN KEY("plan") REFERENCES "plan" (id)
)
 STRICT
;
CREATE INDEX lane_by_connection ON lane (connection, queue) WHERE connection IS NOT NULL AND ended_at IS NULL;
CREATE INDEX lane_by_plan ON lane ("plan") WHERE plan IS NOT NULL;
CREATE INDEX lane_discarding ON lane (id) WHERE discarding = 1;
CREATE INDEX lane_due ON lane (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX lane_ended ON lane (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX lane_holding ON lane (held, held_bytes) WHERE held > 0;
CREATE INDEX lane_leasable ON lane (queue, served_at) WHERE served_at IS NOT NULL AND on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from);
CREATE INDEX lane_leased ON lane (owner, leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX lane_open ON lane (principal, peer) WHERE ended_at IS NULL AND kind = 'rm';
CREATE INDEX lane_owned ON lane (owner) WHERE owner IS NOT NULL;
CREATE INDEX lane_replays ON lane (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX lane_runnable ON lane (retry_at) WHERE served_at IS NULL AND on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from);
CREATE TABLE entry (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	queue INTEGER NOT NULL, 
	message INTEGER NOT NULL, 
	lane INTEGER, 
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
	owner INTEGER, 
	fence INTEGER DEFAULT '0' NOT NULL, 
	running_since INTEGER, 
	priority INTEGER, 
	leased_until INTEGER, 
	lessee INTEGER, 
	expires_at INTEGER, 
	hold TEXT, 
	journal_of INTEGER, 
	asks INTEGER, 
	CONSTRAINT outcome_is_a_word CHECK (outcome IN ('delivered', 'dead', 'discarded', 'purged')), 
	CONSTRAINT settled_has_outcome CHECK ((outcome IS NULL) = (settled_at IS NULL)), 
	FOREIGN KEY(queue) REFERENCES queue (id), 
	FOREIGN KEY(message) REFERENCES message (id), 
	FOREIGN KEY(lane) REFERENCES lane (id), 
	FOREIGN KEY(origin) REFERENCES queue (id), 
	FOREIGN KEY(replay_of) REFERENCES entry (id)
)
 STRICT
;
CREATE INDEX entry_by_message ON entry (message);
CREATE INDEX entry_consumed ON entry (queue, id) WHERE priority IS NOT NULL AND outcome IS NULL;
CREATE INDEX entry_dead ON entry (queue, id, confirmed_at) WHERE outcome = 'dead';
CREATE INDEX entry_expiring ON entry (expires_at) WHERE expires_at IS NOT NULL AND outcome IS NULL AND owner IS NULL;
CREATE INDEX entry_faulted ON entry (settled_at, outcome, confirmed_at) WHERE reason = 'answered_with_fault';
CREATE INDEX entry_leased ON entry (owner, leased_until) WHERE leased_until IS NOT NULL;
CREATE UNIQUE INDEX entry_live ON entry (lane, number) WHERE lane IS NOT NULL AND outcome IS NULL;
CREATE INDEX entry_loose ON entry (retry_at) WHERE priority IS NULL AND lane IS NULL AND outcome IS NULL;
CREATE INDEX entry_owned ON entry (owner) WHERE owner IS NOT NULL AND leased_until IS NULL;
CREATE INDEX entry_ready ON entry (queue, priority DESC, id) WHERE priority IS NOT NULL AND lane IS NULL AND outcome IS NULL AND owner IS NULL AND hold IS NULL;
CREATE INDEX entry_undelivered ON entry (lane, number) WHERE outcome IN ('dead', 'discarded');
CREATE INDEX entry_unnamed ON entry (lane, number) WHERE named = 0;
CREATE INDEX entry_waiting ON entry (hold, retry_at) WHERE hold IS NOT NULL AND outcome IS NULL;
CREATE TABLE range (
	lane INTEGER NOT NULL, 
	lower INTEGER NOT NULL, 
	upper INTEGER NOT NULL, 
	PRIMARY KEY (lane, lower), 
	CONSTRAINT range_is_not_empty CHECK (lower <= upper), 
	FOREIGN KEY(lane) REFERENCES lane (id)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE sequence (
	lane INTEGER NOT NULL, 
	create_id TEXT, 
	rm TEXT NOT NULL, 
	behavior TEXT NOT NULL, 
	incomplete_reason TEXT NOT NULL, 
	expires_at INTEGER, 
	state TEXT NOT NULL, 
	last_number INTEGER, 
	duplicates INTEGER DEFAULT '0' NOT NULL, 
	late TEXT, 
	acks_to TEXT, 
	ack_due_at INTEGER, 
	acks_fetched_by TEXT, 
	ack_waits INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (lane), 
	CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closed')), 
	CONSTRAINT late_is_a_word CHECK (late IN ('accept', 'refuse')), 
	FOREIGN KEY(lane) REFERENCES lane (id)
)
 STRICT
;
CREATE INDEX sequence_ack_due ON sequence (ack_due_at) WHERE ack_due_at IS NOT NULL;
CREATE INDEX sequence_ack_waits ON sequence (acks_fetched_by) WHERE ack_waits = 1;
CREATE INDEX sequence_create_id ON sequence (create_id) WHERE create_id IS NOT NULL;
CREATE TABLE lane_entry (
	lane INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	entry INTEGER NOT NULL, 
	PRIMARY KEY (lane, number), 
	FOREIGN KEY(lane) REFERENCES lane (id), 
	FOREIGN KEY(entry) REFERENCES entry (id)
)
 WITHOUT ROWID,
 STRICT
;
CREATE TABLE loose (
	entry INTEGER NOT NULL, 
	identifier TEXT NOT NULL, 
	peer TEXT, 
	partner TEXT, 
	soap TEXT NOT NULL, 
	addressing TEXT NOT NULL, 
	assurance TEXT NOT NULL, 
	PRIMARY KEY (entry), 
	FOREIGN KEY(entry) REFERENCES entry (id)
)
 STRICT
;
CREATE TABLE outbound_sequence (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	answers INTEGER, 
	identifier TEXT NOT NULL, 
	queue INTEGER NOT NULL, 
	principal TEXT, 
	peer TEXT, 
	partner TEXT, 
	rm TEXT NOT NULL, 
	soap TEXT NOT NULL, 
	addressing TEXT NOT NULL, 
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
	takes_below INTEGER, 
	offered TEXT, 
	replied TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT state_is_a_word CHECK (state IN ('creating', 'created', 'closing', 'closed', 'terminating', 'terminated', 'expired', 'failed')), 
	UNIQUE (answers), 
	FOREIGN KEY(answers) REFERENCES sequence (lane), 
	UNIQUE (identifier), 
	FOREIGN KEY(queue) REFERENCES queue (id)
)
 STRICT
;
CREATE INDEX outbound_acknowledged ON outbound_sequence (answers) WHERE state = 'created' AND unacknowledged = 0 AND endpoint IS NOT NULL;
CREATE INDEX outbound_own ON outbound_sequence (queue, id) WHERE answers IS NULL;
CREATE TABLE reply (
	entry INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	headers TEXT NOT NULL, 
	stored_at INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	outbound INTEGER, 
	number INTEGER, 
	outgoing_entry INTEGER, 
	PRIMARY KEY (entry), 
	FOREIGN KEY(entry) REFERENCES entry (id)
)
 STRICT
;
CREATE UNIQUE INDEX reply_numbered ON reply (outbound, number) WHERE number IS NOT NULL;
CREATE TABLE channel (
	lane INTEGER NOT NULL, 
	answers INTEGER, 
	outbound INTEGER, 
	address TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	is_numbered INTEGER NOT NULL, 
	PRIMARY KEY (lane), 
	CONSTRAINT channel_is_about_a_sequence CHECK (outbound IS NOT NULL OR (answers IS NOT NULL AND is_numbered = 0)), 
	FOREIGN KEY(lane) REFERENCES lane (id), 
	FOREIGN KEY(answers) REFERENCES sequence (lane), 
	FOREIGN KEY(outbound) REFERENCES outbound_sequence (id)
)
 STRICT
;
CREATE INDEX channel_by_address ON channel (address);
CREATE INDEX channel_by_endpoint ON channel (answers, address, parameters, is_numbered);
CREATE INDEX channel_by_outbound ON channel (outbound, address, parameters, is_numbered);
INSERT INTO watermark (name, upto) VALUES ('connection_message', 0), ('lane_entry', 0);
INSERT INTO sqlite_sequence (name, seq) VALUES ('entry', 0), ('queue', 0), ('outbound_sequence', 0);
CREATE VIEW read_views AS SELECT 1 AS version;
CREATE VIEW queues AS SELECT queue.id AS "key", queue.name AS queue, queue.kind, (SELECT other.name 
FROM queue AS other 
WHERE other.id = queue.parent) AS parent, queue.application, queue.created_at, (SELECT count(*) AS count_1 
FROM queue AS letters JOIN entry ON entry.queue = letters.id 
WHERE letters.parent = queue.id AND letters.kind = 'dead_letter' AND entry.outcome = 'dead') AS dead_letters, (SELECT count(*) AS count_2 
FROM queue AS letters JOIN entry ON entry.queue = letters.id 
WHERE letters.parent = queue.id AND letters.kind = 'dead_letter' AND entry.outcome = 'dead' AND entry.confirmed_at IS NULL) AS unconfirmed, (SELECT count(*) AS count_3 
FROM entry 
WHERE entry.queue = queue.id AND entry.lane IS NULL AND entry.outcome IS NULL AND entry.priority IS NULL) AS loose, (SELECT min(message.received_at) AS min_1 
FROM entry JOIN message ON message.id = entry.message 
WHERE entry.queue = queue.id AND entry.lane IS NULL AND entry.outcome IS NULL AND entry.priority IS NULL) AS loose_oldest_at, queue.policy, CASE WHEN (queue.policy IS NOT NULL) THEN queue.messages END AS messages, CASE WHEN (queue.policy IS NOT NULL) THEN queue.bytes END AS bytes, queue.last_put_at, CASE WHEN (queue.policy IS NOT NULL) THEN CAST(round(queue.came * max(0.0, 1.0 - abs(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - queue.counted_at) / (60000.0 + 0.0))) AS INTEGER) END AS came_lately, CASE WHEN (queue.policy IS NOT NULL) THEN CAST(round(queue.went * max(0.0, 1.0 - abs(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - queue.counted_at) / (60000.0 + 0.0))) AS INTEGER) END AS went_lately, (SELECT message.received_at 
FROM message 
WHERE message.id = (SELECT entry.message 
FROM entry 
WHERE entry.queue = queue.id AND entry.priority IS NOT NULL AND entry.lane IS NULL AND entry.outcome IS NULL AND entry.owner IS NULL AND entry.hold IS NULL AND (entry.expires_at IS NULL OR entry.expires_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) ORDER BY entry.priority DESC, entry.id
 LIMIT 1 OFFSET 0)) AS next_at 
FROM queue;
CREATE VIEW instances AS SELECT instance.id AS "key", instance.name AS instance, instance.host, instance.pid, instance.started_at, instance.ended_at, instance.application, instance.paths 
FROM instance;
CREATE VIEW bindings AS SELECT binding.id AS "key", binding.pattern, binding.filter, queue.name AS queue, queue.kind, binding.created_at 
FROM binding JOIN queue ON queue.id = binding.queue;
CREATE VIEW subscriptions AS SELECT subscription.id AS "key", subscription.name AS subscription, client.name AS client, instance.name AS instance, instance.pid, queue.name AS queue, subscription.pattern, subscription.filter, subscription.asked, subscription.granted, subscription.lease, subscription.created_at, subscription.seen_at, CASE WHEN (subscription.pattern IS NOT NULL) THEN subscription.ended_at ELSE coalesce(subscription.ended_at, client.ended_at, instance.ended_at) END AS ended_at, CASE WHEN (subscription.beside IS NOT NULL) THEN (SELECT json_group_array(other.name) AS list_of_1 
FROM queue AS other 
WHERE other.id IN (SELECT anon_1.value 
FROM json_each(subscription.beside) AS anon_1)) END AS beside 
FROM subscription JOIN queue ON queue.id = subscription.queue LEFT OUTER JOIN client ON client.id = subscription.client LEFT OUTER JOIN instance ON instance.id = client.instance;
CREATE VIEW clients AS SELECT client.id AS "key", client.name AS client, instance.name AS instance, instance.host, instance.pid, client.started_at, client.seen_at, coalesce(client.ended_at, instance.ended_at) AS ended_at 
FROM client LEFT OUTER JOIN instance ON instance.id = client.instance;
CREATE VIEW sequences AS SELECT lane.id AS "key", lane.identifier AS sequence, queue.name AS queue, lane.principal, lane.peer, lane.partner, coalesce(ruling.rm, 'none') AS rm, lane.soap, lane.addressing, coalesce(sequence.behavior, 'NoDiscard') AS behavior, lane.assurance, lane.ordered, lane.created_at, sequence.expires_at, lane.inactivity, CASE WHEN (lane.ended IS NOT NULL) THEN 'ended' ELSE coalesce(sequence.state, 'created') END AS state, lane.ended, lane.ended_at, lane.active_at, CASE WHEN (lane.ended IS NULL) THEN min(coalesce(sequence.expires_at, lane.active_at + lane.inactivity), coalesce(lane.active_at + lane.inactivity, sequence.expires_at)) END AS due_at, sequence.last_number, coalesce((SELECT range.upper + 1 AS anon_1 
FROM range 
WHERE range.lane = lane.id AND range.lower = 1), 1) AS expected, lane.cursor, lane."limit", lane.discard_from, lane.discard_reason, lane.discarding, (SELECT instance.name 
FROM instance 
WHERE instance.id = lane.owner) AS owner, lane.running_since, lane.retry_from, lane.retry_at, lane.blocked, lane.redelivery_below, coalesce(sequence.duplicates, 0) AS duplicates, lane.kind, lane.connection, lane.on_hold_since, sequence.late, (SELECT coalesce(sum((range.upper - range.lower) + 1), 0) AS coalesce_6 
FROM range 
WHERE range.lane = lane.id) AS received, lane.held, (SELECT coalesce(sum((min(range.upper, lane."limit" - 1) - max(range.lower, lane.cursor)) + 1), 0) AS coalesce_8 
FROM range 
WHERE range.lane = lane.id AND range.upper >= lane.cursor AND range.lower < lane."limit") AS ready, lane.pruned, CASE WHEN (lane.kind = 'replay' AND lane.cursor < lane."limit") THEN lane.active_at ELSE (SELECT message.received_at 
FROM message 
WHERE message.id = (SELECT min(unsettled.message) AS min_1 
FROM (SELECT entry.message AS message 
FROM entry 
WHERE entry.lane = lane.id AND entry.number >= lane.cursor AND entry.outcome IS NULL ORDER BY entry.number
 LIMIT 1000 OFFSET 0) AS unsettled)) END AS oldest_at, replayed.identifier AS replay_of, lane."plan", channel.address AS sends_to, answered.identifier AS answers, CASE WHEN (lane.on_hold_since IS NOT NULL) THEN 'held' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NOT NULL) THEN 'blocked' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NOT NULL) THEN 'running' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NULL AND lane.cursor < lane."limit" AND (lane.discard_from IS NULL OR lane.cursor < lane.discard_from) AND lane.retry_at IS NOT NULL AND lane.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (lane.retry_from IS NULL OR lane.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))) THEN 'retrying' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NULL AND lane.cursor < lane."limit" AND (lane.discard_from IS NULL OR lane.cursor < lane.discard_from) AND NOT (lane.retry_at IS NOT NULL AND lane.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (lane.retry_from IS NULL OR lane.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)))) THEN 'ready' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NULL AND NOT (lane.cursor < lane."limit" AND (lane.discard_from IS NULL OR lane.cursor < lane.discard_from)) AND lane.discarding = 1) THEN 'discarding' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NULL AND NOT (lane.cursor < lane."limit" AND (lane.discard_from IS NULL OR lane.cursor < lane.discard_from)) AND lane.discarding != 1 AND lane.held > 0) THEN 'waiting' WHEN (lane.on_hold_since IS NULL AND lane.blocked IS NULL AND lane.owner IS NULL AND NOT (lane.cursor < lane."limit" AND (lane.discard_from IS NULL OR lane.cursor < lane.discard_from)) AND lane.discarding != 1 AND lane.held <= 0) THEN 'idle' END AS delivery, CASE WHEN (lane.served_at IS NOT NULL) THEN 1 ELSE 0 END AS consumed 
FROM lane JOIN queue ON queue.id = lane.queue LEFT OUTER JOIN sequence ON sequence.lane = lane.id LEFT OUTER JOIN lane AS replayed ON replayed.id = lane.replay_of LEFT OUTER JOIN channel ON channel.lane = lane.id LEFT OUTER JOIN lane AS answered ON answered.id = channel.answers LEFT OUTER JOIN sequence AS ruling ON ruling.lane = coalesce(channel.answers, lane.replay_of, lane.id);
CREATE VIEW ranges AS SELECT range.lane AS "key", lane.identifier AS sequence, range.lower, range.upper 
FROM range JOIN lane ON lane.id = range.lane;
CREATE VIEW messages AS SELECT entry.id AS position, entry.message, queue.name AS queue, lane.identifier AS sequence, entry.number, message.message_id, message.action, CASE WHEN (entry.outcome IS NOT NULL) THEN entry.outcome ELSE CASE WHEN (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) THEN 'held' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND lane."limit" IS NOT NULL AND entry.number >= lane."limit") THEN 'held' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NOT NULL) THEN 'held' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NOT NULL AND NOT (entry.owner IS NOT NULL OR lane.owner IS NOT NULL AND (entry.number = lane.cursor OR entry.number < coalesce(lane.leased_below, 0)))) THEN 'held' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NOT NULL AND (entry.owner IS NOT NULL OR lane.owner IS NOT NULL AND (entry.number = lane.cursor OR entry.number < coalesce(lane.leased_below, 0)))) THEN 'leased' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NULL AND (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR lane.retry_at IS NOT NULL AND lane.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (lane.retry_from IS NULL OR lane.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR entry.hold IS NOT NULL AND entry.retry_at IS NULL)) THEN 'held' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NULL AND NOT (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR lane.retry_at IS NOT NULL AND lane.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (lane.retry_from IS NULL OR lane.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR entry.hold IS NOT NULL AND entry.retry_at IS NULL) AND (entry.owner IS NOT NULL OR lane.owner IS NOT NULL AND (entry.number = lane.cursor OR entry.number < coalesce(lane.leased_below, 0)))) THEN 'leased' ELSE 'ready' END END AS state, CASE WHEN (entry.outcome IS NOT NULL) THEN entry.reason ELSE CASE WHEN (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) THEN 'sequence' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND lane."limit" IS NOT NULL AND entry.number >= lane."limit") THEN 'gap' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NOT NULL) THEN 'sequence' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NOT NULL AND NOT (entry.owner IS NOT NULL OR lane.owner IS NOT NULL AND (entry.number = lane.cursor OR entry.number < coalesce(lane.leased_below, 0)))) THEN 'operator' WHEN (NOT (lane.discard_from IS NOT NULL AND entry.number >= lane.discard_from) AND NOT (lane."limit" IS NOT NULL AND entry.number >= lane."limit") AND lane.blocked IS NULL AND lane.on_hold_since IS NULL AND (entry.retry_at IS NOT NULL AND entry.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (entry.retry_from IS NULL OR entry.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR lane.retry_at IS NOT NULL AND lane.retry_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AND (lane.retry_from IS NULL OR lane.retry_from <= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) OR entry.hold IS NOT NULL AND entry.retry_at IS NULL)) THEN coalesce(entry.hold, 'backoff') END END AS reason, entry.outcome, message.received_at, entry.settled_at, entry.deliveries, entry.failures, entry.deaths, entry.retry_at, entry.last_error, message.principal, message.connection, json_extract(message.environ, '$.REMOTE_ADDR') AS peer, message.body_size, message.body IS NOT NULL AS has_body, message.environ AS request, entry.wants_reply, entry.named, entry.late, (SELECT other.name 
FROM queue AS other 
WHERE other.id = entry.origin) AS origin, entry.replay_of, entry.journal_of, entry.confirmed_at, coalesce(source.identifier, loose.identifier) AS original_sequence, CASE WHEN (loose.entry IS NOT NULL) THEN 1 ELSE arrived.number END AS original_number, coalesce(lane.partner, loose.partner) AS partner, entry.priority, entry.cancels, entry.expires_at, CASE WHEN (CASE WHEN (entry.number < lane.leased_below) THEN lane.leased_until ELSE entry.leased_until END IS NOT NULL AND (entry.outcome IS NULL OR entry.outcome = 'dead')) THEN CASE WHEN (entry.number < lane.leased_below) THEN lane.leased_until ELSE entry.leased_until END END AS leased_until, CASE WHEN (CASE WHEN (entry.number < lane.leased_below) THEN lane.leased_until ELSE entry.leased_until END IS NOT NULL AND (entry.outcome IS NULL OR entry.outcome = 'dead')) THEN (SELECT instance.name 
FROM instance 
WHERE instance.id = CASE WHEN (entry.number < lane.leased_below) THEN lane.owner ELSE entry.owner END) END AS holder, CASE WHEN (CASE WHEN (entry.number < lane.leased_below) THEN lane.leased_until ELSE entry.leased_until END IS NOT NULL AND (entry.outcome IS NULL OR entry.outcome = 'dead')) THEN (SELECT client.name 
FROM subscription JOIN client ON client.id = subscription.client 
WHERE subscription.id = CASE WHEN (entry.number < lane.leased_below) THEN lane.lessee ELSE entry.lessee END) END AS consumer, header.topic, header.properties, header.content_type, header.client AS producer, routed.node || '/' || routed.incarnation || '/' || CAST(routed.position AS TEXT) AS trace, json_array_length(routed.via) - CASE WHEN (routed.sent_as IS NOT NULL) THEN 1 ELSE 0 END AS hop, routed.target 
FROM entry LEFT OUTER JOIN lane ON lane.id = entry.lane LEFT OUTER JOIN queue ON queue.id = entry.queue LEFT OUTER JOIN message ON message.id = entry.message LEFT OUTER JOIN entry AS arrived ON arrived.id = entry.message LEFT OUTER JOIN lane AS source ON source.id = arrived.lane LEFT OUTER JOIN loose ON loose.entry = entry.message LEFT OUTER JOIN header ON header.message = entry.message LEFT OUTER JOIN routed ON routed.message = entry.message;
CREATE VIEW bodies AS SELECT entry.id AS position, message.body 
FROM entry JOIN message ON message.id = entry.message;
CREATE VIEW replies AS SELECT reply.entry AS position, reply.status, reply.headers, reply.stored_at, reply.body, outbound_sequence.identifier AS sequence, reply.number 
FROM reply LEFT OUTER JOIN outbound_sequence ON outbound_sequence.id = reply.outbound;
CREATE VIEW outgoing_sequences AS SELECT outbound_sequence.answers AS "key", outbound_sequence.identifier AS sequence, lane.identifier AS answers, queue.name AS queue, CASE WHEN (outbound_sequence.state = 'expired' OR outbound_sequence.state = 'failed' OR outbound_sequence.state = 'terminated') THEN 'ended' ELSE outbound_sequence.state END AS state, CASE WHEN (outbound_sequence.state = 'expired' OR outbound_sequence.state = 'failed' OR outbound_sequence.state = 'terminated') THEN outbound_sequence.state END AS ended, outbound_sequence.expires_at, outbound_sequence.given AS sent, outbound_sequence.last_number, outbound_sequence.acknowledged, outbound_sequence.unacknowledged, outbound_sequence.waiting_since, lane.created_at, lane.active_at 
FROM outbound_sequence JOIN lane ON lane.id = outbound_sequence.answers JOIN queue ON queue.id = lane.queue;
CREATE VIEW request_sequences AS SELECT outbound_sequence.id AS "key", outbound_sequence.identifier AS sequence, queue.name AS queue, outbound_sequence.peer AS sends_to, outbound_sequence.rm, outbound_sequence.soap, outbound_sequence.addressing, CASE WHEN (outbound_sequence.state = 'expired' OR outbound_sequence.state = 'failed' OR outbound_sequence.state = 'terminated') THEN 'ended' ELSE outbound_sequence.state END AS state, CASE WHEN (outbound_sequence.state = 'expired' OR outbound_sequence.state = 'failed' OR outbound_sequence.state = 'terminated') THEN outbound_sequence.state END AS ended, outbound_sequence.expires_at, outbound_sequence.given AS sent, outbound_sequence.last_number, outbound_sequence.acknowledged, outbound_sequence.unacknowledged, outbound_sequence.waiting_since, outbound_sequence.principal AS acks_to, nullif(outbound_sequence.offered, '') AS offered, outbound_sequence.replied, waiting_in.identifier AS lane, waiting_in.created_at, waiting_in.active_at 
FROM outbound_sequence JOIN queue ON queue.id = outbound_sequence.queue LEFT OUTER JOIN channel ON channel.outbound = outbound_sequence.id AND channel.is_numbered = 1 LEFT OUTER JOIN lane AS waiting_in ON waiting_in.id = channel.lane 
WHERE outbound_sequence.answers IS NULL;
CREATE VIEW sequence_messages AS SELECT lane.identifier AS sequence, lane_entry.number, lane_entry.entry AS position 
FROM lane_entry JOIN lane ON lane.id = lane_entry.lane UNION ALL SELECT lane.identifier, entry.number, entry.id 
FROM entry JOIN lane ON lane.id = entry.lane 
WHERE entry.id > (SELECT watermark.upto 
FROM watermark 
WHERE watermark.name = 'lane_entry');
CREATE VIEW faulted AS SELECT entry.id AS position, (SELECT other.name 
FROM queue AS other 
WHERE other.id = entry.queue) AS queue, (SELECT lane.identifier 
FROM lane 
WHERE lane.id = entry.lane) AS sequence, entry.number, entry.settled_at, entry.outcome, entry.confirmed_at 
FROM entry 
WHERE entry.reason = 'answered_with_fault';
CREATE VIEW undelivered AS SELECT entry.lane AS "key", entry.number, entry.id AS position, entry.outcome, entry.reason, entry.settled_at, CASE WHEN (EXISTS (SELECT again.id 
FROM entry AS again 
WHERE again.message = entry.message AND (again.outcome = 'dead' AND again.confirmed_at IS NOT NULL OR again.outcome = 'discarded' AND again.reason = 'by_operator'))) THEN 1 ELSE 0 END AS confirmed 
FROM entry 
WHERE entry.outcome IN ('dead', 'discarded') AND entry.reason IS NOT 'empty_last_message' AND entry.reason IS NOT 'not_told' AND entry.reason IS NOT 'not_fetched' AND NOT (EXISTS (SELECT again.id 
FROM entry AS again 
WHERE again.message = entry.message AND again.outcome = 'delivered')) AND (entry.reason IS NOT 'replayed' OR (EXISTS (SELECT again.id 
FROM entry AS again 
WHERE again.message = entry.message AND again.id > entry.id)));
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
WHERE other.id = ledger.queue) AS queue, lane.identifier AS sequence, ledger.number, ledger.position, ledger.instance, ledger.attempt, ledger.reason, ledger.actor, ledger.fault, ledger.exception, ledger.place 
FROM ledger LEFT OUTER JOIN lane ON lane.id = ledger.sequence;
CREATE VIEW attempts AS SELECT ledger.id AS "key", ledger.at, ledger.event, (SELECT other.name 
FROM queue AS other 
WHERE other.id = ledger.queue) AS queue, lane.identifier AS sequence, ledger.number, ledger.position, ledger.instance, ledger.attempt, ledger.reason, ledger.actor, ledger.fault, ledger.exception, ledger.place 
FROM ledger LEFT OUTER JOIN lane ON lane.id = ledger.sequence 
WHERE ledger.event = 'failed' OR ledger.event = 'holder_died' OR ledger.event = 'broke_off' OR ledger.event = 'lease_ended' OR ledger.event = 'answered_with_fault';
CREATE VIEW counters AS SELECT counter.name, CASE WHEN (counter.queue = 0) THEN '' ELSE (SELECT other.name 
FROM queue AS other 
WHERE other.id = counter.queue) END AS queue, counter.label, counter.value 
FROM counter;
CREATE VIEW refusals AS SELECT refusal.reason, refusal.partner, refusal.times, refusal.last_at, refusal.said 
FROM refusal;
INSERT INTO identity (id, mark) VALUES ('00112233445566778899aabbccddeeff', 0);
