// Package dashboard serves pages for people: what runs, what failed, and why.
//
//	browser ──cookie──► /ui/…      pages, made from what the client reads now
//	           │
//	           └──────► /ui/v1/…   the gateway's /v1, with the token of the cookie: live events, output, commands
//
// It holds no state: the cookie has the token of the person who signed in (ADR 0055). Pages are html/template; scripts change text and
// attributes only, which the Content-Security-Policy and Trusted Types enforce. All that comes from a sandbox is hostile.
package dashboard
