"""Ray Serve on topics: replicas as members of a group, scaled by its lag.

serve_topic         a deployment that consumes a topic
ray_serve_missing   the error raised if Ray Serve is not installed
topic_replica       one of its replicas
lag_policy          an AutoscalingPolicy by lag, for any deployment
"""
