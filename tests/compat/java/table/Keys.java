import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.remoting.RPCHook;

/** Who signs the requests of a program, if its target asks for that. */
final class Keys {
    private Keys() {
    }

    /** May send and create topics, and nothing else. */
    static RPCHook producer() {
        return of("producer");
    }

    /** May read and consume, and nothing else. */
    static RPCHook consumer() {
        return of("consumer");
    }

    /** May both. */
    static RPCHook application() {
        return of("application");
    }

    /** What operators' tools sign with. */
    static RPCHook tools() {
        return of("tools");
    }

    /** Whether the target serves nobody but users. */
    static boolean areAskedFor() {
        return System.getProperty("application.accessKey") != null;
    }

    private static RPCHook of(String role) {
        return hook(System.getProperty(role + ".accessKey"), System.getProperty(role + ".secretKey"));
    }

    static RPCHook hook(String accessKey, String secretKey) {
        return accessKey == null ? null : new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    /** The default; constructors that take keys want it as well. */
    static AllocateMessageQueueStrategy averagely() {
        return new AllocateMessageQueueAveragely();
    }
}
