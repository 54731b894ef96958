from confluent_kafka import Producer


def test_orders_survive_a_killed_node(klamm_cluster, klamm_topic):
    producer = Producer({"bootstrap.servers": klamm_cluster.bootstrap, "acks": "all"})
    producer.produce(klamm_topic, b"before", partition=0)
    assert producer.flush(30) == 0
    klamm_cluster.node(klamm_cluster.partition_state(klamm_topic, 0).leader).kill()
    producer.produce(klamm_topic, b"after", partition=0)
    assert producer.flush(30) == 0
    assert klamm_cluster.offsets(klamm_topic)[0] == (0, 2)
