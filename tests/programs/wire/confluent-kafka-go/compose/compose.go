// Package compose stands in for the library that starts brokers in containers, with all that it
// depends on: the suite needs its names to compile, and calls them only if told to start a broker.
package compose

import "errors"

// ExecError is the outcome of a command.
type ExecError struct{ Error error }

// LocalDockerCompose cannot start anything.
type LocalDockerCompose struct{}

// NewLocalDockerCompose returns one.
func NewLocalDockerCompose([]string, string) *LocalDockerCompose { return &LocalDockerCompose{} }

// WithCommand returns the receiver.
func (c *LocalDockerCompose) WithCommand([]string) *LocalDockerCompose { return c }

// Down does nothing.
func (c *LocalDockerCompose) Down() ExecError { return c.Invoke() }

// Invoke fails.
func (c *LocalDockerCompose) Invoke() ExecError {
	return ExecError{errors.New("the suite runs against a gateway, not containers")}
}
