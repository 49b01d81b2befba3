// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// bookkeeper is a placer with one job; put carries out its writes of variables.
func bookkeeper(t *testing.T, put func(body string) (status int)) (*Placer, *model.Tracked) {
	t.Helper()
	p := newPlacer(t)
	client, err := nomad.NewClient(&api.Config{Address: "http://nomad.test", HttpClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		return &http.Response{StatusCode: put(string(body)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, err
	})}}, "")
	if err != nil {
		t.Fatal(err)
	}
	p.nomad, p.m.State = client, cluster.NewState()
	job := benchJob("j", 1)
	p.m.State.PutJob(job)
	return p, &model.Tracked{Lifecycle: gang.Of(gang.Observed{Key: cluster.KeyOf(job), Job: job})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func noted(note gang.Note) gang.Record {
	return gang.Record{Namespace: "default", Job: "j", Note: note}
}

// WriteRecord waits for an older record of the job that is being written, so that the older one
// does not replace the newer.
func TestRecordsOfAJobInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []string
		p, j := bookkeeper(t, func(body string) int {
			if strings.Contains(body, "older") {
				time.Sleep(time.Second)
			}
			written = append(written, map[bool]string{true: "older", false: "newer"}[strings.Contains(body, "older")])
			return http.StatusOK
		})
		p.unsaved.put(noted("older"))
		p.startWrites(t.Context(), p.m.Time)
		synctest.Wait()
		if _, err := p.askNomad(t.Context(), j, gang.WriteRecord{Record: noted("newer")}); err != nil {
			t.Fatal(err)
		}
		if p.awaitWrites(); !slices.Equal(written, []string{"older", "newer"}) {
			t.Errorf("written: %q", written)
		}
	})
}

// A record that could not be written does not replace a newer one later.
func TestRecordThatFailsIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, j := bookkeeper(t, func(string) int { time.Sleep(time.Second); return http.StatusForbidden })
		p.unsaved.put(noted("older"))
		p.startWrites(t.Context(), p.m.Time)
		p.carryOutHere(j, gang.SaveRecord{Record: noted("newer")})
		if p.awaitWrites(); p.unsaved.len() != 1 || p.unsaved.oldest().Note != "newer" {
			t.Errorf("unsaved: %d, %+v", p.unsaved.len(), p.unsaved.of)
		}
		if len(p.failing()) != 1 {
			t.Errorf("warnings %q", p.failing())
		}
	})
}

// A panic while a record is written counts against the record's job.
func TestPanicWhileWriting(t *testing.T) {
	p, j := bookkeeper(t, func(string) int { panic("a bug") })
	p.unsaved.put(noted(""))
	p.startWrites(t.Context(), p.m.Time)
	defer func() {
		if c, ok := recover().(*callPanic); !ok || c.job != j.Key {
			t.Errorf("the panic is of job %+v", c)
		}
	}()
	p.awaitWrites()
}
