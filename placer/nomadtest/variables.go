// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// variableBytes is the maximum size of a variable.
const variableBytes = 64 << 10

// variable is a Nomad variable, or a lock.
type variable struct {
	api.Variable
	// expires is the time when the lock expires unless somebody renews it. free is the time when
	// another client can acquire the lock after it has expired.
	expires, free time.Time
}

func variableKey(namespace, path string) string { return namespace + "\x00" + path }

func size(items map[string]string) int {
	n := 0
	for k, v := range items {
		n += len(k) + len(v)
	}
	return n
}

// setVariable writes a variable if the variable has the index cas, or if cas is -1. If the index is
// different, conflict is the current variable.
func (s *Server) setVariable(v *api.Variable, cas int64) (out *api.Variable, conflict *api.Variable, err error) {
	if size(v.Items) > variableBytes {
		return nil, nil, httpError(http.StatusBadRequest, "variables are limited to 64KiB in total size")
	}
	if len(v.Items) == 0 {
		return nil, nil, httpError(http.StatusBadRequest, "variable missing required Items object")
	}
	key := variableKey(v.Namespace, v.Path)
	was := s.vars[key]
	index := uint64(0)
	if was != nil {
		s.expire(was)
		index = was.ModifyIndex
		if was.Lock != nil && (v.Lock == nil || v.Lock.ID != was.Lock.ID) {
			return nil, &was.Variable, nil
		}
	}
	if cas >= 0 && uint64(cas) != index {
		if was == nil {
			return nil, &api.Variable{Namespace: v.Namespace, Path: v.Path}, nil
		}
		return nil, &was.Variable, nil
	}
	own := variable{Variable: *v}
	own.Items = maps.Clone(v.Items)
	own.ModifyIndex, own.ModifyTime = s.nextIndex("variables"), s.now().UnixNano()
	own.CreateIndex, own.CreateTime = own.ModifyIndex, own.ModifyTime
	if was != nil {
		own.CreateIndex, own.CreateTime, own.Lock, own.expires, own.free = was.CreateIndex, was.CreateTime, was.Lock, was.expires, was.free
	}
	s.vars[key] = &own
	return &own.Variable, nil, nil
}

func (s *Server) deleteVariable(namespace, path string) {
	key := variableKey(namespace, path)
	if s.vars[key] != nil {
		s.nextIndex("variables")
		delete(s.vars, key)
	}
}

func (s *Server) listVariables(namespace, prefix string) []*api.VariableMetadata {
	out := []*api.VariableMetadata{}
	for _, key := range slices.Sorted(maps.Keys(s.vars)) {
		v := s.vars[key]
		if v.Namespace == namespace && strings.HasPrefix(v.Path, prefix) {
			out = append(out, &api.VariableMetadata{Namespace: v.Namespace, Path: v.Path, CreateIndex: v.CreateIndex, ModifyIndex: v.ModifyIndex, CreateTime: v.CreateTime, ModifyTime: v.ModifyTime})
		}
	}
	return out
}

// expire releases a lock that was not renewed in time.
func (s *Server) expire(v *variable) {
	if v.Lock != nil && !s.now().Before(v.expires) {
		delay, err := time.ParseDuration(v.Lock.LockDelay)
		if err != nil {
			delay = 15 * time.Second
		}
		v.free, v.Lock = v.expires.Add(delay), nil
	}
}

// acquire acquires a lock. If another client holds the lock, acquire returns the locked variable in
// conflict.
func (s *Server) acquire(v *api.Variable) (out, conflict *api.Variable, err error) {
	key := variableKey(v.Namespace, v.Path)
	was := s.vars[key]
	if was != nil {
		s.expire(was)
		if was.Lock != nil || s.now().Before(was.free) {
			return nil, &was.Variable, nil
		}
	}
	if v.Lock == nil {
		return nil, nil, httpError(http.StatusBadRequest, "variable missing required lock information")
	}
	ttl, err := time.ParseDuration(v.Lock.TTL)
	if err != nil {
		return nil, nil, httpError(http.StatusBadRequest, "invalid lock TTL: %v", err)
	}
	own := variable{Variable: *v}
	lock := *v.Lock
	lock.ID = s.id(fmt.Sprint("lock ", v.Path, s.count("lock "+v.Path)))
	own.Lock, own.expires = &lock, s.now().Add(ttl)
	own.ModifyIndex, own.ModifyTime = s.nextIndex("variables"), s.now().UnixNano()
	own.CreateIndex, own.CreateTime = own.ModifyIndex, own.ModifyTime
	if was != nil {
		own.CreateIndex, own.CreateTime = was.CreateIndex, was.CreateTime
		if len(own.Items) == 0 {
			own.Items = was.Items
		}
	}
	s.vars[key] = &own
	return &own.Variable, nil, nil
}

// heldLock returns the lock if it is held with the lock id of v.
func (s *Server) heldLock(v *api.Variable) (*variable, error) {
	was := s.vars[variableKey(v.Namespace, v.Path)]
	if was != nil {
		s.expire(was)
	}
	if was == nil || was.Lock == nil || v.Lock == nil || v.Lock.ID != was.Lock.ID {
		return nil, httpError(http.StatusConflict, "variable lock not held")
	}
	return was, nil
}

func (s *Server) renew(v *api.Variable) (*api.VariableMetadata, error) {
	was, err := s.heldLock(v)
	if err != nil {
		return nil, err
	}
	ttl, err := time.ParseDuration(was.Lock.TTL)
	if err != nil {
		return nil, err
	}
	was.expires = s.now().Add(ttl)
	return &api.VariableMetadata{Namespace: was.Namespace, Path: was.Path, ModifyIndex: was.ModifyIndex, Lock: was.Lock}, nil
}

func (s *Server) releaseLock(v *api.Variable) (*api.Variable, error) {
	was, err := s.heldLock(v)
	if err != nil {
		return nil, err
	}
	own := *was
	own.Lock, own.free = nil, time.Time{}
	own.ModifyIndex = s.nextIndex("variables")
	s.vars[variableKey(v.Namespace, v.Path)] = &own
	return &own.Variable, nil
}

// Variable returns the items of a variable, or nil if there is no such variable.
func (s *Server) Variable(namespace, path string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.vars[variableKey(namespace, path)]; v != nil {
		return maps.Clone(v.Items)
	}
	return nil
}

// SetVariable writes a variable in the way an operator does.
func (s *Server) SetVariable(namespace, path string, items map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.setVariable(&api.Variable{Namespace: namespace, Path: path, Items: items}, -1); err != nil {
		panic(err)
	}
}
