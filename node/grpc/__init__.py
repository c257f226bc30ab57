"""The gRPC service of RocketMQ's 5.x clients, on the port of the broker: no proxy is needed.

bytes --> `http2` --> calls --> requests of the remoting protocol --+--> the broker's handlers
                                                                    +--> those of the master
"""
