// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

// migrations bring the database to the present form, one after the other; the table version says
// how many were applied. Never change one that was released: add another. They are written for
// SQLite and PostgreSQL alike. Times are Unix milliseconds, 0 for none; GPU time is milliseconds.
var migrations = []string{`
CREATE TABLE run (
	namespace TEXT NOT NULL, job TEXT NOT NULL, submitted BIGINT NOT NULL,
	username TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL, gpus BIGINT NOT NULL,
	state TEXT NOT NULL, reason TEXT NOT NULL,
	started BIGINT NOT NULL, whole BIGINT NOT NULL, ended BIGINT NOT NULL, waited BIGINT NOT NULL,
	predicted DOUBLE PRECISION NOT NULL, packed DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (namespace, job, submitted));
CREATE INDEX run_submitted ON run (submitted DESC, namespace, job);
CREATE INDEX run_user ON run (username, submitted DESC, namespace, job);
CREATE INDEX run_ended ON run (ended);
CREATE TABLE alloc (
	id TEXT NOT NULL PRIMARY KEY,
	namespace TEXT NOT NULL, job TEXT NOT NULL, submitted BIGINT NOT NULL,
	username TEXT NOT NULL, class TEXT NOT NULL, node TEXT NOT NULL, model TEXT NOT NULL,
	gpus TEXT NOT NULL,
	began BIGINT NOT NULL, ended BIGINT NOT NULL, status TEXT NOT NULL, vain BIGINT NOT NULL,
	predicted DOUBLE PRECISION NOT NULL, packed DOUBLE PRECISION NOT NULL);
CREATE INDEX alloc_run ON alloc (namespace, job, submitted);
CREATE INDEX alloc_ended ON alloc (ended);
CREATE TABLE day (
	day BIGINT NOT NULL,
	namespace TEXT NOT NULL, username TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL,
	gpu_ms BIGINT NOT NULL, failed_ms BIGINT NOT NULL, vain_ms BIGINT NOT NULL, saved_ms BIGINT NOT NULL,
	runs BIGINT NOT NULL, complete BIGINT NOT NULL, failed BIGINT NOT NULL, stopped BIGINT NOT NULL, waited_ms BIGINT NOT NULL,
	PRIMARY KEY (day, namespace, username, class, model));
`}
