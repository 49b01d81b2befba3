// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

// migrations change the database step by step to the current schema. The table version contains the
// number of migrations that were applied. Never change a released migration; add a new one instead.
// Each migration runs on both SQLite and PostgreSQL. Times are in Unix milliseconds, and 0 means
// that there is no time. Durations are milliseconds. In the table run, stops_lost is in GPU
// seconds, and stops_won is in seconds.
//
// Queries return runs in the order of submission, so most indexes are sorted by submission, too. The
// tables day and month contain a column for each [sum].
var migrations = []string{`
CREATE TABLE run (
	namespace TEXT NOT NULL, job TEXT NOT NULL, submitted BIGINT NOT NULL,
	username TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL, gpus BIGINT NOT NULL,
	member_gpus BIGINT NOT NULL, preemptible BOOLEAN NOT NULL,
	state TEXT NOT NULL, reason TEXT NOT NULL,
	started BIGINT NOT NULL, whole BIGINT NOT NULL, ended BIGINT NOT NULL, waited BIGINT NOT NULL,
	predicted DOUBLE PRECISION NOT NULL, packed DOUBLE PRECISION NOT NULL, any_gpus DOUBLE PRECISION NOT NULL,
	slowest BIGINT NOT NULL, family TEXT NOT NULL, took BIGINT NOT NULL, seen DOUBLE PRECISION NOT NULL,
	idle BIGINT NOT NULL,
	stops BIGINT NOT NULL, stops_lost DOUBLE PRECISION NOT NULL, stops_won DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (namespace, job, submitted));
CREATE INDEX run_submitted ON run (submitted);
CREATE INDEX run_namespace ON run (namespace, submitted);
CREATE INDEX run_user ON run (username, submitted);
CREATE INDEX run_class ON run (class, submitted);
CREATE INDEX run_model ON run (model, submitted);
CREATE INDEX run_state ON run (state, submitted);
CREATE INDEX run_ended ON run (ended);
CREATE INDEX run_family ON run (namespace, family, submitted) WHERE took > 0;
CREATE TABLE alloc (
	id TEXT NOT NULL PRIMARY KEY,
	namespace TEXT NOT NULL, job TEXT NOT NULL, submitted BIGINT NOT NULL,
	username TEXT NOT NULL, class TEXT NOT NULL, node TEXT NOT NULL, model TEXT NOT NULL,
	gpus TEXT NOT NULL, held DOUBLE PRECISION NOT NULL,
	began BIGINT NOT NULL, ended BIGINT NOT NULL, status TEXT NOT NULL, vain BIGINT NOT NULL,
	predicted DOUBLE PRECISION NOT NULL, packed DOUBLE PRECISION NOT NULL);
CREATE INDEX alloc_ended ON alloc (ended);
CREATE TABLE day (
	day BIGINT NOT NULL,
	namespace TEXT NOT NULL, username TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL,` + sumTypes + `,
	PRIMARY KEY (day, namespace, username, class, model));
CREATE TABLE month (
	day BIGINT NOT NULL,
	namespace TEXT NOT NULL, username TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL,` + sumTypes + `,
	PRIMARY KEY (day, namespace, username, class, model));
`}
