// Package learn keeps contexts of a service, for the training of a screen on its own traffic.
package learn
