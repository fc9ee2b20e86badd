// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// The PATH that container tools set in an image without a base image.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Dockerfile says how to read a Dockerfile. Its last stage must be FROM scratch, and that stage is the image. Nothing is run:
// other stages must be given as folders.
type Dockerfile struct {
	Text io.Reader
	// Context is the folder that COPY reads from. A .dockerignore file has no effect.
	Context string
	// Stages are folders that COPY --from=NAME reads from, by name.
	Stages       map[string]string
	Args         map[string]string
	Labels       map[string]string
	Architecture string
	Created      time.Time
}

// Recipe returns the image that the Dockerfile describes.
func (d Dockerfile) Recipe() (Recipe, error) {
	parsed, err := parser.Parse(d.Text)
	if err != nil {
		return Recipe{}, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return Recipe{}, err
	}
	last := stages[len(stages)-1]
	if last.BaseName != "scratch" {
		return Recipe{}, fmt.Errorf("the last stage is FROM %s, must be FROM scratch", last.BaseName)
	}
	s := &stage{Dockerfile: d, args: map[string]string{}, recipe: Recipe{
		Architecture: d.Architecture, Created: d.Created,
		Config: v1.Config{Env: []string{defaultPath}, Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}},
	}}
	for _, command := range last.Commands {
		if err := s.apply(command); err != nil {
			return Recipe{}, fmt.Errorf("%s: %w", command, err)
		}
	}
	maps.Copy(s.recipe.Config.Labels, d.Labels)
	return s.recipe, nil
}

// stage is the last stage while its instructions are read.
type stage struct {
	Dockerfile
	args   map[string]string
	recipe Recipe
}

func (s *stage) apply(command instructions.Command) error {
	if expandable, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		if err := expandable.Expand(s.expand); err != nil {
			return err
		}
	}
	config := &s.recipe.Config
	switch c := command.(type) {
	case *instructions.ArgCommand:
		for _, arg := range c.Args {
			if value, given := s.Args[arg.Key]; given {
				s.args[arg.Key] = value
			} else if arg.Key == "TARGETARCH" {
				s.args[arg.Key] = s.Architecture
			} else if arg.Value != nil {
				s.args[arg.Key] = *arg.Value
			}
		}
	case *instructions.LabelCommand:
		for _, label := range c.Labels {
			config.Labels[label.Key] = label.Value
		}
	case *instructions.CopyCommand:
		return s.copyFiles(c)
	case *instructions.UserCommand:
		config.User = c.User
	case *instructions.ExposeCommand:
		for _, port := range c.Ports {
			config.ExposedPorts[port+"/tcp"] = struct{}{}
		}
	case *instructions.EntrypointCommand:
		config.Entrypoint = c.CmdLine
		return refuseShell(c.PrependShell)
	case *instructions.CmdCommand:
		config.Cmd = c.CmdLine
		return refuseShell(c.PrependShell)
	default:
		return errors.New("the instruction is not supported: use ARG, LABEL, COPY, USER, EXPOSE, ENTRYPOINT and CMD")
	}
	return nil
}

func refuseShell(needed bool) error {
	if needed {
		return errors.New("the image has no shell: write the command as a list in brackets")
	}
	return nil
}

// expand replaces variables in a word, and removes quotes.
func (s *stage) expand(word string) (string, error) {
	var variables []string
	for _, name := range slices.Sorted(maps.Keys(s.args)) {
		variables = append(variables, name+"="+s.args[name])
	}
	text, _, err := shell.NewLex('\\').ProcessWord(word, shell.EnvsFromSlice(variables))
	return text, err
}

func (s *stage) copyFiles(c *instructions.CopyCommand) error {
	root := s.Context
	if c.From != "" {
		var given bool
		if root, given = s.Stages[c.From]; !given {
			return fmt.Errorf("stage %q is not built here: pass its files with -stage %s=FOLDER", c.From, c.From)
		}
	}
	var mode uint64
	if c.Chmod != "" {
		var err error
		if mode, err = strconv.ParseUint(c.Chmod, 8, 9); err != nil {
			return err
		}
	}
	for _, source := range c.SourcePaths {
		from := filepath.Join(root, clean(source))
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		to := c.DestPath
		if !info.IsDir() && (strings.HasSuffix(to, "/") || len(c.SourcePaths) > 1) {
			to = path.Join(to, path.Base(source))
		}
		s.recipe.Copies = append(s.recipe.Copies, Copy{From: from, To: clean(to), Mode: fs.FileMode(mode)})
	}
	return nil
}
