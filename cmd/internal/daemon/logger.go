package daemon

import (
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weirstream/weir/pkg/config"
)

// newLogger makes the process's logger: to stderr, or to a file in
// env.log.dir. closeLog is to be called last.
func newLogger(c *config.Config, name, format string) (log *zap.Logger, closeLog func() error, err error) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "console":
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	case "json":
		encoder = zapcore.NewJSONEncoder(encoding)
	default:
		return nil, nil, fmt.Errorf("--log-format %q: use console or json", format)
	}
	file, closeLog := os.Stderr, func() error { return nil }
	if dir := config.LogDirectory.Get(c); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, nil, fmt.Errorf("make log directory: %w", err)
		}
		file, err = os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("open log: %w", err)
		}
		closeLog = file.Close
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(file), levelOf(config.LogLevel.Get(c)))), closeLog, nil
}

func levelOf(level config.Level) zapcore.Level {
	switch level {
	case config.LogDebug:
		return zapcore.DebugLevel
	case config.LogInfo:
		return zapcore.InfoLevel
	case config.LogWarn:
		return zapcore.WarnLevel
	case config.LogError:
		return zapcore.ErrorLevel
	}
	return zapcore.InfoLevel
}
