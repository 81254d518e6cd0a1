package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigFromEnv_Variables_AreRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env  map[string]string
		want Config
		err  string
	}{
		"only a home": {
			env:  map[string]string{"HOME": "/home/me"},
			want: Config{Dir: "/home/me/.local/state/lockstep/stack", CacheDir: "/home/me/.cache/lockstep", MongoImage: "mongo:8"},
		},
		"everything": {
			env: map[string]string{
				"XDG_STATE_HOME": "/state", "XDG_CACHE_HOME": "/cache", "LOCKSTEP_MONGODB_URI": "mongodb://h/",
				"LOCKSTEP_MONGO_IMAGE": "mongo:7", "TEMPORAL_ADDRESS": "h:1", "LOCKSTEP_TEMPORAL_UI": "http://h",
			},
			want: Config{
				Dir: "/state/lockstep/stack", CacheDir: "/cache/lockstep", MongoURI: "mongodb://h/", MongoImage: "mongo:7",
				TemporalAddress: "h:1", TemporalUI: "http://h",
			},
		},
		"a folder by name": {
			env:  map[string]string{"HOME": "/home/me", "LOCKSTEP_STACK_DIR": "/here"},
			want: Config{Dir: "/here", CacheDir: "/home/me/.cache/lockstep", MongoImage: "mongo:8"},
		},
		"no home": {
			env: map[string]string{"LOCKSTEP_STACK_DIR": "/here"},
			err: "XDG_CACHE_HOME",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := ConfigFromEnv(func(name string) string { return tt.env[name] })
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, cfg)
		})
	}
}
