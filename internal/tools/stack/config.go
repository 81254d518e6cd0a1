package stack

import (
	"errors"
	"path/filepath"
)

const defaultMongoImage = "mongo:8"

// Config says where a stack lives and what its user has named for it.
type Config struct {
	// Dir holds the stack's data, logs and records. Two stacks need two of them.
	// Defaults to ${XDG_STATE_HOME:-~/.local/state}/lockstep/stack.
	Dir string
	// CacheDir holds what takes long to make and is the same for every stack: built programs and the PostgreSQL root.
	// Defaults to ${XDG_CACHE_HOME:-~/.cache}/lockstep.
	CacheDir string
	// MongoURI names a MongoDB to use instead of starting one. Defaults to none.
	MongoURI string
	// MongoImage is what is run if there is a Docker engine. Defaults to mongo:8.
	MongoImage string
	// TemporalAddress names a Temporal server to use instead of starting one. Defaults to none.
	TemporalAddress string
	// TemporalUI is the web UI of TemporalAddress, only to be shown. Defaults to none.
	TemporalUI string
}

// ConfigFromEnv reads the configuration from the environment.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	cfg := Config{
		Dir:             getenv("LOCKSTEP_STACK_DIR"),
		MongoURI:        getenv("LOCKSTEP_MONGODB_URI"),
		MongoImage:      getenv("LOCKSTEP_MONGO_IMAGE"),
		TemporalAddress: getenv("TEMPORAL_ADDRESS"),
		TemporalUI:      getenv("LOCKSTEP_TEMPORAL_UI"),
	}
	if cfg.MongoImage == "" {
		cfg.MongoImage = defaultMongoImage
	}
	var err error
	if cfg.Dir == "" {
		if cfg.Dir, err = userDir(getenv, "XDG_STATE_HOME", ".local/state"); err != nil {
			return Config{}, err
		}
		cfg.Dir = filepath.Join(cfg.Dir, "lockstep", "stack")
	}
	if cfg.CacheDir, err = userDir(getenv, "XDG_CACHE_HOME", ".cache"); err != nil {
		return Config{}, err
	}
	cfg.CacheDir = filepath.Join(cfg.CacheDir, "lockstep")
	// The services run in folders of their own, where a relative path would mean something else.
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return Config{}, err
	}
	cfg.CacheDir, err = filepath.Abs(cfg.CacheDir)
	return cfg, err
}

func userDir(getenv func(string) string, variable, underHome string) (string, error) {
	if dir := getenv(variable); dir != "" {
		return dir, nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("neither " + variable + " nor HOME is set: set LOCKSTEP_STACK_DIR and XDG_CACHE_HOME to two folders that may be written")
	}
	return filepath.Join(home, underHome), nil
}
