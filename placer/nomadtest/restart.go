// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"
	"strconv"

	"github.com/hashicorp/nomad/api"
)

// restart restarts the tasks of an allocation in place. In a real Nomad, this is done by `nomad
// alloc restart` or by a template with change_mode = "restart". The events of the restarted tasks
// contain no event of a kill (scenario "restarted").
func (s *Server) restart(id string) (any, error) {
	a := s.allocs[id]
	if a == nil {
		return nil, httpError(http.StatusNotFound, "alloc not found")
	}
	if a.client != api.AllocClientStatusRunning || a.signalled {
		return nil, httpError(http.StatusInternalServerError, "Task not running")
	}
	a.run++
	again, exit := a.run, onSignal(a)
	s.taskEvent(a, &api.TaskEvent{Type: api.TaskRestartSignal})
	s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
	s.taskEvent(a, &api.TaskEvent{Type: api.TaskRestarting})
	s.nextIndex("allocs")
	s.reportUpdate(a)
	s.afterJitter(s.opts.Client, "task of "+a.id+" restarts", func() {
		if a.run == again && !a.clientTerminal() && !a.signalled {
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
			s.nextIndex("allocs")
			s.reportUpdate(a)
			s.runTasks(a)
			s.reportHealthy(a)
		}
	})
	return struct{}{}, nil
}

// Finish makes the tasks of a running allocation succeed.
func (s *Server) Finish(id string) { s.Exit(id, 0) }

// Exit makes the tasks of a running allocation end with an exit code.
func (s *Server) Exit(id string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.allocs[id]; a != nil {
		s.tasksEnded(a, a.run, code)
	}
}

// onSignal returns the exit code of an allocation's tasks that end because they were asked to end.
func onSignal(a *alloc) (exit int) {
	exit = 130
	for _, t := range a.taskGroup().Tasks {
		if taskBehaviour(t, a.number).endsWell {
			exit = 0
		}
	}
	return exit
}
