// Which partition Java's producer chooses for a key: lines of "key in hex, number of partitions" in, partitions out.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(",");
            byte[] key = HexFormat.of().parseHex(words[0]);
            out.append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[1]))).append('\n');
        }
        System.out.print(out);
    }
}
