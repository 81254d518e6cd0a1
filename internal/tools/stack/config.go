package stack

import (
	"cmp"
	"errors"
	"path/filepath"
)

const defaultMongoImage = "mongo:8"

// Config locates a stack and names the servers that the user provides.
type Config struct {
	// Dir holds the stack's data, logs and record. Each stack needs its own.
	// Defaults to ${XDG_STATE_HOME:-~/.local/state}/lockstep/stack.
	Dir string
	// CacheDir holds built programs and the PostgreSQL root, for all stacks.
	// Defaults to ${XDG_CACHE_HOME:-~/.cache}/lockstep.
	CacheDir string
	// MongoURI names a MongoDB to use instead of starting one. Defaults to none.
	MongoURI string
	// MongoImage is the image to run if there is a Docker engine. Defaults to mongo:8.
	MongoImage string
	// TemporalAddress names a Temporal server to use instead of starting one. Defaults to none.
	TemporalAddress string
	// TemporalUI is the address of that server's web UI. It is only displayed. Defaults to none.
	TemporalUI string
}

// ConfigFromEnv reads the configuration from environment variables.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	cfg := Config{
		Dir:             getenv("LOCKSTEP_STACK_DIR"),
		MongoURI:        getenv("LOCKSTEP_MONGODB_URI"),
		MongoImage:      cmp.Or(getenv("LOCKSTEP_MONGO_IMAGE"), defaultMongoImage),
		TemporalAddress: getenv("TEMPORAL_ADDRESS"),
		TemporalUI:      getenv("LOCKSTEP_TEMPORAL_UI"),
	}
	if cfg.Dir == "" {
		state, err := userDir(getenv, "XDG_STATE_HOME", ".local/state")
		if err != nil {
			return Config{}, err
		}
		cfg.Dir = filepath.Join(state, "lockstep", "stack")
	}
	cache, err := userDir(getenv, "XDG_CACHE_HOME", ".cache")
	if err != nil {
		return Config{}, err
	}
	// The servers run in other working directories, so the paths must be absolute.
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return Config{}, err
	}
	cfg.CacheDir, err = filepath.Abs(filepath.Join(cache, "lockstep"))
	return cfg, err
}

func userDir(getenv func(string) string, variable, underHome string) (string, error) {
	if dir := getenv(variable); dir != "" {
		return dir, nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("neither " + variable + " nor HOME is set: set LOCKSTEP_STACK_DIR and XDG_CACHE_HOME to two writable folders")
	}
	return filepath.Join(home, underHome), nil
}
