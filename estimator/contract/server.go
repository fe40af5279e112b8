package contract

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Serve runs an estimator as a plugin until its host ends it. It does not return to a person who starts the program by hand:
// that one is told what the program is.
func Serve(e Estimator) { serveVersions(e, Version) }

func serveVersions(e Estimator, versions ...int) {
	sets := map[int]plugin.PluginSet{}
	for _, v := range versions {
		sets[v] = plugin.PluginSet{pluginName: glue{serve: e}}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: sets,
		Logger:           hclog.NewNullLogger(),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(MaxRequestBytes), grpc.MaxSendMsgSize(MaxAnswerBytes))...)
		},
	})
}

// glue ties the service to go-plugin.
type glue struct {
	plugin.NetRPCUnsupportedPlugin
	serve Estimator // nil in the host
}

func (g glue) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&service, &server{g.serve})
	return nil
}

func (g glue) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

const (
	serviceName    = "gresize.estimator.v1.Estimator"
	methodInfo     = "/" + serviceName + "/Info"
	methodEstimate = "/" + serviceName + "/Estimate"
)

// handler is what the service needs of its implementation.
type handler interface {
	info() (*wrapperspb.BytesValue, error)
	estimate(ctx context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
}

// service is estimator.proto in the terms of the gRPC library.
var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*handler)(nil),
	Metadata:    "estimator.proto",
	Methods: []grpc.MethodDesc{
		{MethodName: "Info", Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := decode(&emptypb.Empty{}); err != nil {
				return nil, err
			}
			return srv.(handler).info()
		}},
		{MethodName: "Estimate", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &wrapperspb.BytesValue{}
			if err := decode(in); err != nil {
				return nil, err
			}
			return srv.(handler).estimate(ctx, in)
		}},
	},
}

type server struct{ estimator Estimator }

func (s *server) info() (*wrapperspb.BytesValue, error) { return pack(s.estimator.Info()) }

// estimate answers one question. A panic of the estimator is its answer to this question and not the end of the process: other
// questions may be under way.
func (s *server) estimate(ctx context.Context, in *wrapperspb.BytesValue) (out *wrapperspb.BytesValue, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, status.Error(codes.Internal, fmt.Sprintf("the estimator panics: %.500v", p))
		}
	}()
	var r Request
	if err := json.Unmarshal(in.GetValue(), &r); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := r.Validate(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	e, err := s.estimator.Estimate(ctx, r)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%.2000s", err.Error()))
	}
	return pack(e)
}

func pack(v any) (*wrapperspb.BytesValue, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return wrapperspb.Bytes(data), nil
}
