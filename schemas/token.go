package schemas

import (
	"slices"
	"time"
)

// Scope is what a token of the HTTP gateway allows. Each scope includes those before it.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"  // see sessions, processes, output, files, events and messages
	ScopeExec  Scope = "exec"  // run commands, change files, create and end sessions
	ScopeAdmin Scope = "admin" // manage the tokens of the tenant
)

// Scopes lists every scope, the least first.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeExec, ScopeAdmin} }

// Token describes a token of the HTTP gateway, without its secret. It is stored in the state bucket under token.<id>, with the SHA-256
// of the secret.
type Token struct {
	// ID is the token's id; see [ValidID].
	ID string `json:"id"`
	// Name says for people what the token is for, at most [MaxUserBytes].
	Name string `json:"name,omitempty"`
	// Tenant is the tenant whose threads it reaches.
	Tenant string `json:"tenant"`
	// Scope is what it allows.
	Scope Scope `json:"scope"`
	// Created is when it was created, in UTC.
	Created time.Time `json:"created"`
	// Expires is when it ends, in UTC; zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Limits bound what its bearer may use.
	Limits TokenLimits `json:"limits,omitzero"`
}

// Allows reports whether the token's scope includes s.
func (t *Token) Allows(s Scope) bool {
	order := Scopes()
	return slices.Index(order, s) <= slices.Index(order, t.Scope)
}

// Validate checks every field but Created. The error is invalid_argument with the detail "path".
func (t *Token) Validate() error {
	return first(CheckID("id", t.ID), checkLabel("name", t.Name, MaxUserBytes), CheckID("tenant", t.Tenant), oneOf("scope", t.Scope, Scopes()),
		t.Limits.Validate())
}
