import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole RocketMQ broker, slave of a group: its configuration has no haMasterAddress, so it learns
 * from name servers who is its master.
 *
 * Arguments: name servers, cluster, group, broker id, address, port, store directory, size of
 * commit-log files. A line on standard input asks for one: the end of its log, and its master.
 */
public class BrokerProbe {
    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BrokerConfig broker = new BrokerConfig();
        broker.setNamesrvAddr(arguments[0]);
        broker.setBrokerClusterName(arguments[1]);
        broker.setBrokerName(arguments[2]);
        broker.setBrokerId(Long.parseLong(arguments[3]));
        broker.setBrokerIP1(arguments[4]);
        broker.setBrokerIP2(arguments[4]);
        // The shortest it takes; 30 s otherwise.
        broker.setRegisterNameServerPeriod(10_000);
        NettyServerConfig server = new NettyServerConfig();
        int port = Integer.parseInt(arguments[5]);
        server.setListenPort(port);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setBrokerRole(BrokerRole.SLAVE);
        store.setStorePathRootDir(arguments[6]);
        store.setStorePathCommitLog(arguments[6] + "/commitlog");
        store.setMappedFileSizeCommitLog(Integer.parseInt(arguments[7]));
        store.setHaListenPort(port + 1);
        store.setTimerWheelEnable(false);
        store.setDiskMaxUsedSpaceRatio(99);
        BrokerController controller =
            new BrokerController(broker, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("initialize() says no");
        }
        controller.start();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        while (orders.readLine() != null) {
            answers.println(controller.getMessageStore().getMaxPhyOffset() + " "
                + controller.getSlaveSynchronize().getMasterAddr());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
