// Package observe derives a worker's log lines and metrics from the events that the worker publishes.
//
//	processor.Worker ──► Records (decorated) ──► events
//	                 ──► Policy  (decorated)
//	                          │
//	                          ▼
//	                      Observer ──► log lines: session_created, session_reused, validation_failed …
//	                               └─► Prometheus metrics, by template and outcome, never by thread: threads are unbounded
package observe
